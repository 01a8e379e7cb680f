import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.SubscribedTopicDescriberImpl;
import org.apache.kafka.coordinator.group.modern.TopicIds;

/**
 * Kafka's own assignors and metadata hash as a filter, one line in, one line out. Fields are separated by blanks:
 *
 *   assign uniform|range same|mixed TOPIC,TOPIC,... MEMBER;MEMBER;...      ->  member|id:0.1.2,id:3;member|...
 *   hash TOPIC,TOPIC,...                                                   ->  group hash, then those of the topics
 *
 * TOPIC is name=id:partitions[:racks of partition 0/racks of partition 1/..., racks separated by dots], MEMBER is
 * id|instance id|name,name,...|id:0.1.2,id:3.
 */
public class GroupOracle {
    private record Topic(String name, Uuid id, int partitionCount, List<List<String>> racks)
        implements CoordinatorMetadataImage.TopicMetadata {
        @Override
        public List<String> partitionRacks(int partition) {
            return partition < racks.size() ? new ArrayList<>(racks.get(partition)) : new ArrayList<>();
        }
    }

    private record Image(Map<String, Topic> byName, Map<Uuid, Topic> byId) implements CoordinatorMetadataImage {
        @Override
        public Set<Uuid> topicIds() {
            return byId.keySet();
        }

        @Override
        public Set<String> topicNames() {
            return byName.keySet();
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(String name) {
            return Optional.ofNullable(byName.get(name));
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return Optional.ofNullable(byId.get(id));
        }

        @Override
        public CoordinatorMetadataDelta emptyDelta() {
            return CoordinatorMetadataDelta.EMPTY;
        }

        @Override
        public long version() {
            return 0;
        }

        @Override
        public boolean isEmpty() {
            return byId.isEmpty();
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            out.println(words[0].equals("hash") ? hash(image(words[1])) : assign(words));
        }
        out.flush();
    }

    private static Image image(String text) {
        Map<String, Topic> byName = new LinkedHashMap<>();
        Map<Uuid, Topic> byId = new HashMap<>();
        for (String each : parts(text, ",")) {
            String[] fields = each.substring(each.indexOf('=') + 1).split(":");
            List<List<String>> racks = new ArrayList<>();
            if (fields.length > 2)
                for (String partition : fields[2].split("/", -1))
                    racks.add(parts(partition, "\\."));
            String name = each.substring(0, each.indexOf('='));
            Topic topic = new Topic(name, Uuid.fromString(fields[0]), Integer.parseInt(fields[1]), racks);
            byName.put(name, topic);
            byId.put(topic.id(), topic);
        }
        return new Image(byName, byId);
    }

    private static List<String> parts(String text, String separator) {
        return text.isEmpty() ? List.of() : Arrays.asList(text.split(separator));
    }

    private static String hash(Image image) {
        Map<String, Long> hashes = new TreeMap<>();
        for (String name : image.topicNames())
            hashes.put(name, Utils.computeTopicHash(name, image));
        StringBuilder text = new StringBuilder(Long.toString(Utils.computeGroupHash(hashes)));
        hashes.forEach((name, value) -> text.append(' ').append(name).append('=').append(value));
        return text.toString();
    }

    private static String assign(String[] words) {
        PartitionAssignor assignor = words[1].equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = words[2].equals("same") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        Image image = image(words[3]);
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        for (String each : parts(words[4], ";")) {
            String[] fields = each.split("\\|", -1);
            Map<Uuid, Set<Integer>> assignment = new HashMap<>();
            for (String topic : parts(fields[3], ",")) {
                Uuid id = Uuid.fromString(topic.substring(0, topic.indexOf(':')));
                List<Integer> partitions = new ArrayList<>();
                for (String partition : parts(topic.substring(topic.indexOf(':') + 1), "\\."))
                    partitions.add(Integer.parseInt(partition));
                assignment.put(id, new HashSet<>(partitions));
                for (int partition : partitions)
                    inverted.computeIfAbsent(id, __ -> new HashMap<>()).put(partition, fields[0]);
            }
            members.put(fields[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                fields[1].isEmpty() ? Optional.empty() : Optional.of(fields[1]),
                new TopicIds(new HashSet<>(parts(fields[2], ",")), image),
                new Assignment(assignment)));
        }
        GroupAssignment result = assignor.assign(
            new GroupSpecImpl(Collections.unmodifiableMap(members), type, inverted),
            new SubscribedTopicDescriberImpl(image));
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, MemberAssignment> entry : new TreeMap<>(result.members()).entrySet()) {
            text.append(text.length() == 0 ? "" : ";").append(entry.getKey()).append('|');
            String comma = "";
            for (Map.Entry<String, Set<Integer>> topic : byText(entry.getValue().partitions()).entrySet()) {
                text.append(comma).append(topic.getKey()).append(':');
                comma = ",";
                String dot = "";
                for (int partition : new TreeSet<>(topic.getValue())) {
                    text.append(dot).append(partition);
                    dot = ".";
                }
            }
        }
        return text.toString();
    }

    private static Map<String, Set<Integer>> byText(Map<Uuid, Set<Integer>> partitions) {
        Map<String, Set<Integer>> sorted = new TreeMap<>();
        partitions.forEach((id, set) -> sorted.put(id.toString(), set));
        return sorted;
    }
}
