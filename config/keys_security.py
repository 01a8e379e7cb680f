"""Broker configs of TLS, SASL, authorization and delegation tokens. Columns: see definition.py."""

KEYS = """
# Authorization and principals
authorizer.class.name string "" nonnull low
    Class that decides who may do what; empty allows everything.
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder \
* medium per-broker
    Class that makes the principal of a connection.
delegation.token.secret.key password null * medium
    Secret that signs delegation tokens; the same on every node.
delegation.token.max.lifetime.ms long 604800000 1.. medium
    Longest life of a delegation token.
delegation.token.expiry.time.ms long 86400000 1.. medium
    Life of a delegation token before it has to be renewed.
delegation.token.expiry.check.interval.ms long 3600000 1.. low
    How often expired delegation tokens are removed.
security.providers string null * low
    Java security providers. Without meaning in pylogd.

# TLS
ssl.protocol string TLSv1.3 * medium per-broker
    TLS version to start from.
ssl.provider string null * medium per-broker
    Java TLS provider. Without meaning in pylogd.
ssl.enabled.protocols list TLSv1.2,TLSv1.3 list? medium per-broker
    TLS versions that are accepted.
ssl.cipher.suites list "" list? medium per-broker
    Cipher suites that are accepted; empty means the defaults.
ssl.keystore.type string JKS * medium per-broker
    Format of the key store.
ssl.keystore.location string null * medium per-broker
    File with the node's key and certificates.
ssl.keystore.password password null * medium per-broker
    Password of the key store.
ssl.key.password password null * medium per-broker
    Password of the private key.
ssl.keystore.key password null * medium per-broker
    Private key itself, as PEM.
ssl.keystore.certificate.chain password null * medium per-broker
    Certificate chain itself, as PEM.
ssl.truststore.type string JKS * medium per-broker
    Format of the trust store.
ssl.truststore.location string null * medium per-broker
    File with trusted certificates.
ssl.truststore.password password null * medium per-broker
    Password of the trust store.
ssl.truststore.certificates password null * medium per-broker
    Trusted certificates themselves, as PEM.
ssl.keymanager.algorithm string SunX509 * medium per-broker
    Java key manager. Without meaning in pylogd.
ssl.trustmanager.algorithm string PKIX * medium per-broker
    Java trust manager. Without meaning in pylogd.
ssl.secure.random.implementation string null * low per-broker
    Java random source. Without meaning in pylogd.
ssl.engine.factory.class class null * low per-broker
    Java class that makes TLS engines. Without meaning in pylogd.
ssl.endpoint.identification.algorithm string https * low per-broker
    Check of the server's name in its certificate; empty turns it off.
ssl.client.auth string none {required,requested,none} medium per-broker
    Whether clients must, may or need not show a certificate.
ssl.principal.mapping.rules string DEFAULT * low
    Rules that shorten a certificate's name to a user name.
ssl.allow.dn.changes boolean false * low
    Accept a new key store whose certificate has another subject.
ssl.allow.san.changes boolean false * low
    Accept a new key store whose certificate lacks some alternative names.

# SASL
sasl.enabled.mechanisms list GSSAPI list? medium per-broker
    SASL mechanisms that are offered.
sasl.mechanism.inter.broker.protocol string GSSAPI * medium per-broker
    SASL mechanism between brokers.
sasl.mechanism.controller.protocol string GSSAPI * high
    SASL mechanism towards the controller.
sasl.jaas.config password null * medium per-broker
    Login of a SASL listener in JAAS syntax.
sasl.client.callback.handler.class class null * medium
    Class for SASL client callbacks.
sasl.server.callback.handler.class class null * medium
    Class for SASL server callbacks.
sasl.login.callback.handler.class class null * medium
    Class for SASL login callbacks.
sasl.login.class class null * medium
    Class that logs in.
sasl.server.max.receive.size int 524288 * medium
    Largest SASL message before authentication.
sasl.kerberos.service.name string null * medium per-broker
    Kerberos service of the brokers.
sasl.kerberos.kinit.cmd string /usr/bin/kinit * medium per-broker
    Command that gets a Kerberos ticket.
sasl.kerberos.ticket.renew.window.factor double 0.8 * medium per-broker
    Share of a ticket's life after which it is renewed.
sasl.kerberos.ticket.renew.jitter double 0.05 * medium per-broker
    Random part of the renewal time.
sasl.kerberos.min.time.before.relogin long 60000 * medium per-broker
    Least time between two renewals.
sasl.kerberos.principal.to.local.rules list DEFAULT list? medium per-broker
    Rules that shorten a Kerberos principal to a user name.
sasl.login.refresh.window.factor double 0.8 * medium per-broker
    Share of a credential's life after which it is refreshed.
sasl.login.refresh.window.jitter double 0.05 * medium per-broker
    Random part of the refresh time.
sasl.login.refresh.min.period.seconds short 60 * medium per-broker
    Least time between two refreshes.
sasl.login.refresh.buffer.seconds short 300 * medium per-broker
    Time kept free before a credential ends.
sasl.login.connect.timeout.ms int null * low
    Connection time-out to the token endpoint.
sasl.login.read.timeout.ms int null * low
    Read time-out of the token endpoint.
sasl.login.retry.backoff.ms long 100 * low
    First wait before the token endpoint is asked again.
sasl.login.retry.backoff.max.ms long 10000 * low
    Longest wait before the token endpoint is asked again.

# OAuth
sasl.oauthbearer.token.endpoint.url string null * medium
    Where access tokens are issued.
sasl.oauthbearer.scope string null * medium
    Scope asked for with a token.
sasl.oauthbearer.client.credentials.client.id string null * medium
    Client id for the client-credentials grant.
sasl.oauthbearer.client.credentials.client.secret password null * medium
    Client secret for the client-credentials grant.
sasl.oauthbearer.assertion.algorithm string RS256 i{ES256,RS256} medium
    Signature of an assertion.
sasl.oauthbearer.assertion.claim.aud string null * medium
    Audience in an assertion.
sasl.oauthbearer.assertion.claim.iss string null * medium
    Issuer in an assertion.
sasl.oauthbearer.assertion.claim.sub string null * medium
    Subject in an assertion.
sasl.oauthbearer.assertion.claim.jti.include boolean false * medium
    Put a unique id into an assertion.
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400 low
    Life of an assertion.
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600 low
    How far an assertion is valid into the past.
sasl.oauthbearer.assertion.file string null * medium
    File with a ready assertion.
sasl.oauthbearer.assertion.private.key.file string null * medium
    File with the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase password null * medium
    Passphrase of that key.
sasl.oauthbearer.assertion.template.file string null * medium
    File with more headers and claims of an assertion.
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever * medium
    Class that fetches tokens.
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator * medium
    Class that checks tokens.
sasl.oauthbearer.jwks.endpoint.url string null * medium
    Where the keys that check tokens are published.
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000 * low
    How often those keys are fetched.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100 * low
    First wait after a failed fetch of those keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000 * low
    Longest wait after a failed fetch of those keys.
sasl.oauthbearer.expected.audience list "" list? high
    Audiences accepted in a token.
sasl.oauthbearer.expected.issuer string null * high
    Issuer accepted in a token.
sasl.oauthbearer.clock.skew.seconds int 30 * low
    Clock difference tolerated in a token's times.
sasl.oauthbearer.scope.claim.name string scope * low
    Claim that holds the scope.
sasl.oauthbearer.sub.claim.name string sub * low
    Claim that holds the user.
"""
