"""Broker configs of TLS, SASL, authorization and delegation tokens. Columns: see definition.py."""

KEYS = """
# Authorization and principals
authorizer.class.name string "" nonnull low inert
    Class that decides who may do what; empty allows everything.
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder \
* medium per-broker inert
    Class that makes the principal of a connection.
delegation.token.secret.key password null * medium inert
    Secret that signs delegation tokens; the same on every node.
delegation.token.max.lifetime.ms long 604800000 1.. medium inert
    Longest life of a delegation token.
delegation.token.expiry.time.ms long 86400000 1.. medium inert
    Life of a delegation token before it has to be renewed.
delegation.token.expiry.check.interval.ms long 3600000 1.. low inert
    How often expired delegation tokens are removed.
security.providers string null * low inert
    Java security providers. Without meaning in pylogd.

# TLS
ssl.protocol string TLSv1.3 * medium per-broker inert
    TLS version to start from.
ssl.provider string null * medium per-broker inert
    Java TLS provider. Without meaning in pylogd.
ssl.enabled.protocols list TLSv1.2,TLSv1.3 list? medium per-broker inert
    TLS versions that are accepted.
ssl.cipher.suites list "" list? medium per-broker inert
    Cipher suites that are accepted; empty means the defaults.
ssl.keystore.type string JKS * medium per-broker inert
    Format of the key store.
ssl.keystore.location string null * medium per-broker inert
    File with the node's key and certificates.
ssl.keystore.password password null * medium per-broker inert
    Password of the key store.
ssl.key.password password null * medium per-broker inert
    Password of the private key.
ssl.keystore.key password null * medium per-broker inert
    Private key itself, as PEM.
ssl.keystore.certificate.chain password null * medium per-broker inert
    Certificate chain itself, as PEM.
ssl.truststore.type string JKS * medium per-broker inert
    Format of the trust store.
ssl.truststore.location string null * medium per-broker inert
    File with trusted certificates.
ssl.truststore.password password null * medium per-broker inert
    Password of the trust store.
ssl.truststore.certificates password null * medium per-broker inert
    Trusted certificates themselves, as PEM.
ssl.keymanager.algorithm string SunX509 * medium per-broker inert
    Java key manager. Without meaning in pylogd.
ssl.trustmanager.algorithm string PKIX * medium per-broker inert
    Java trust manager. Without meaning in pylogd.
ssl.secure.random.implementation string null * low per-broker inert
    Java random source. Without meaning in pylogd.
ssl.engine.factory.class class null * low per-broker inert
    Java class that makes TLS engines. Without meaning in pylogd.
ssl.endpoint.identification.algorithm string https * low per-broker inert
    Check of the server's name in its certificate; empty turns it off.
ssl.client.auth string none {required,requested,none} medium per-broker inert
    Whether clients must, may or need not show a certificate.
ssl.principal.mapping.rules string DEFAULT * low inert
    Rules that shorten a certificate's name to a user name.
ssl.allow.dn.changes boolean false * low inert
    Accept a new key store whose certificate has another subject.
ssl.allow.san.changes boolean false * low inert
    Accept a new key store whose certificate lacks some alternative names.

# SASL
sasl.enabled.mechanisms list GSSAPI list? medium per-broker inert
    SASL mechanisms that are offered.
sasl.mechanism.inter.broker.protocol string GSSAPI * medium per-broker inert
    SASL mechanism between brokers.
sasl.mechanism.controller.protocol string GSSAPI * high inert
    SASL mechanism towards the controller.
sasl.jaas.config password null * medium per-broker inert
    Login of a SASL listener in JAAS syntax.
sasl.client.callback.handler.class class null * medium inert
    Class for SASL client callbacks.
sasl.server.callback.handler.class class null * medium inert
    Class for SASL server callbacks.
sasl.login.callback.handler.class class null * medium inert
    Class for SASL login callbacks.
sasl.login.class class null * medium inert
    Class that logs in.
sasl.server.max.receive.size int 524288 * medium inert
    Largest SASL message before authentication.
sasl.kerberos.service.name string null * medium per-broker inert
    Kerberos service of the brokers.
sasl.kerberos.kinit.cmd string /usr/bin/kinit * medium per-broker inert
    Command that gets a Kerberos ticket.
sasl.kerberos.ticket.renew.window.factor double 0.8 * medium per-broker inert
    Share of a ticket's life after which it is renewed.
sasl.kerberos.ticket.renew.jitter double 0.05 * medium per-broker inert
    Random part of the renewal time.
sasl.kerberos.min.time.before.relogin long 60000 * medium per-broker inert
    Least time between two renewals.
sasl.kerberos.principal.to.local.rules list DEFAULT list? medium per-broker inert
    Rules that shorten a Kerberos principal to a user name.
sasl.login.refresh.window.factor double 0.8 * medium per-broker inert
    Share of a credential's life after which it is refreshed.
sasl.login.refresh.window.jitter double 0.05 * medium per-broker inert
    Random part of the refresh time.
sasl.login.refresh.min.period.seconds short 60 * medium per-broker inert
    Least time between two refreshes.
sasl.login.refresh.buffer.seconds short 300 * medium per-broker inert
    Time kept free before a credential ends.
sasl.login.connect.timeout.ms int null * low inert
    Connection time-out to the token endpoint.
sasl.login.read.timeout.ms int null * low inert
    Read time-out of the token endpoint.
sasl.login.retry.backoff.ms long 100 * low inert
    First wait before the token endpoint is asked again.
sasl.login.retry.backoff.max.ms long 10000 * low inert
    Longest wait before the token endpoint is asked again.

# OAuth
sasl.oauthbearer.token.endpoint.url string null * medium inert
    Where access tokens are issued.
sasl.oauthbearer.scope string null * medium inert
    Scope asked for with a token.
sasl.oauthbearer.client.credentials.client.id string null * medium inert
    Client id for the client-credentials grant.
sasl.oauthbearer.client.credentials.client.secret password null * medium inert
    Client secret for the client-credentials grant.
sasl.oauthbearer.assertion.algorithm string RS256 i{ES256,RS256} medium inert
    Signature of an assertion.
sasl.oauthbearer.assertion.claim.aud string null * medium inert
    Audience in an assertion.
sasl.oauthbearer.assertion.claim.iss string null * medium inert
    Issuer in an assertion.
sasl.oauthbearer.assertion.claim.sub string null * medium inert
    Subject in an assertion.
sasl.oauthbearer.assertion.claim.jti.include boolean false * medium inert
    Put a unique id into an assertion.
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400 low inert
    Life of an assertion.
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600 low inert
    How far an assertion is valid into the past.
sasl.oauthbearer.assertion.file string null * medium inert
    File with a ready assertion.
sasl.oauthbearer.assertion.private.key.file string null * medium inert
    File with the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase password null * medium inert
    Passphrase of that key.
sasl.oauthbearer.assertion.template.file string null * medium inert
    File with more headers and claims of an assertion.
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever \
* medium inert
    Class that fetches tokens.
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator \
* medium inert
    Class that checks tokens.
sasl.oauthbearer.jwks.endpoint.url string null * medium inert
    Where the keys that check tokens are published.
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000 * low inert
    How often those keys are fetched.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100 * low inert
    First wait after a failed fetch of those keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000 * low inert
    Longest wait after a failed fetch of those keys.
sasl.oauthbearer.expected.audience list "" list? high inert
    Audiences accepted in a token.
sasl.oauthbearer.expected.issuer string null * high inert
    Issuer accepted in a token.
sasl.oauthbearer.clock.skew.seconds int 30 * low inert
    Clock difference tolerated in a token's times.
sasl.oauthbearer.scope.claim.name string scope * low inert
    Claim that holds the scope.
sasl.oauthbearer.sub.claim.name string sub * low inert
    Claim that holds the user.
"""
