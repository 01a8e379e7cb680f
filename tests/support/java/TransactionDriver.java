import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Java's transactional producers, driven by lines: "name what words...". Each line is answered by one: "ok result" or
 * "failed Exception: message". The first argument is the bootstrap server.
 */
public class TransactionDriver {
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, true);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                out.println("ok " + run(args[0], words));
            } catch (Throwable error) {
                Throwable cause = error instanceof java.util.concurrent.ExecutionException ? error.getCause() : error;
                String message = String.valueOf(cause.getMessage()).replace('\n', ' ');
                out.println("failed " + cause.getClass().getSimpleName() + ": " + message);
            }
        }
        System.exit(0);
    }

    private static String run(String bootstrap, String[] words) throws Exception {
        KafkaProducer<String, String> producer = PRODUCERS.get(words[0]);
        switch (words[1]) {
            case "init" -> {
                producer = new KafkaProducer<>(Map.of(
                    "bootstrap.servers", bootstrap,
                    "transactional.id", words[2],
                    "transaction.timeout.ms", words[3],
                    "max.block.ms", "30000",
                    "linger.ms", "0"), new StringSerializer(), new StringSerializer());
                PRODUCERS.put(words[0], producer);
                producer.initTransactions();
            }
            case "begin" -> producer.beginTransaction();
            case "send" -> {
                var record = new ProducerRecord<String, String>(words[2], Integer.parseInt(words[3]), null, words[4]);
                return String.valueOf(producer.send(record).get().offset());
            }
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(words[3], Integer.parseInt(words[4])),
                       new OffsetAndMetadata(Long.parseLong(words[5]))),
                new ConsumerGroupMetadata(words[2]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> producer.close(Duration.ofSeconds(5));
            default -> throw new IllegalArgumentException(words[1]);
        }
        return "";
    }
}
