// Prints every config key that Kafka defines, one line each, fields separated by tabs:
// scope, name, type, default (\0 for none, \1 for required), valid values, importance, internal, update mode.
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigDump {
    public static void main(String[] args) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        print("broker", kafka.server.KafkaConfig.configDef(), modes);
        print("broker", QuotaConfig.brokerQuotaConfigs(), modes);
        print("topic", LogConfig.configDefCopy(), Map.of());
        print("group", GroupConfig.CONFIG_DEF, Map.of());
        print("client-metrics", ClientMetricsConfigs.configDef(), Map.of());
        new TreeMap<>(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS).forEach((name, synonyms) ->
            synonyms.forEach(synonym ->
                System.out.println(String.join("\t", "synonym", name, synonym.name(), synonym.converter().apply("7")))));
    }

    private static void print(String scope, ConfigDef definition, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            String value = "\1";
            if (key.hasDefault())
                value = key.defaultValue == null ? "\0" : ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(String.join("\t", scope, key.name, key.type.toString().toLowerCase(), value,
                key.validator == null ? "" : key.validator.toString(), key.importance.toString().toLowerCase(),
                Boolean.toString(key.internalConfig), modes.getOrDefault(key.name, "read-only")));
        }
    }
}
