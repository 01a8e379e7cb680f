import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads topics that match a pattern, which is matched by the broker: bootstrap, group, pattern, how many records. Prints
 * topic-partition@offset for each record, or the name of the exception that ends it.
 */
public class PatternConsumer {
    public static void main(String[] args) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "group.protocol", "consumer",
            "auto.offset.reset", "earliest");
        int wanted = Integer.parseInt(args[3]);
        long deadline = System.nanoTime() + 60_000_000_000L;
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(new SubscriptionPattern(args[2]));
            while (wanted > 0 && System.nanoTime() < deadline)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.topic() + "-" + record.partition() + "@" + record.offset());
                    wanted--;
                }
        } catch (KafkaException error) {
            System.out.println(error.getClass().getSimpleName());
        }
    }
}
