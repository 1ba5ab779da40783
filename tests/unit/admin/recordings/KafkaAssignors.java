// Asks Kafka's own assignors for a number of drawn groups; one JSON line per case. Renew assignors.jsonl with
//   java -cp "$(../shared/tools/real-kafka jars)/*" tests/unit/admin/recordings/KafkaAssignors.java 160 7 \
//     > tests/unit/admin/recordings/assignors.jsonl
// Four lines are those of `6000 23` in which the general algorithm takes a partition back (all 6000 agreed). Behind them
// are the shortest of `3000 5 wide` that tell steps of the sticky algorithms apart (all 3000 agreed).
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.*;
import org.apache.kafka.common.*;

public class KafkaAssignors {
    public static void main(String[] args) {
        int cases = Integer.parseInt(args[0]);
        Random draw = new Random(Long.parseLong(args[1]));
        boolean wide = args.length > 2;
        for (int n = 0; n < cases; n++) System.out.println(one(draw, wide));
    }

    // A wide one has more of all; and more generations, or members that own what they no longer subscribe to. Of members
    // that are behind and do, Kafka's gives others what they do not subscribe to.
    static String one(Random draw, boolean wide) {
        Map<String, Integer> topics = new TreeMap<>();
        for (int t = 0; t <= draw.nextInt(wide ? 6 : 3); t++) topics.put("topic-" + t, 1 + draw.nextInt(9));
        List<String> names = new ArrayList<>(topics.keySet());
        boolean equal = !wide && draw.nextBoolean();
        boolean leftovers = wide && draw.nextBoolean();
        int generation = 1 + draw.nextInt(4);
        int size = 1 + draw.nextInt(wide ? 7 : 5);
        List<String> rows = new ArrayList<>();
        Map<String, List<String>> wants = new LinkedHashMap<>();
        Map<String, List<TopicPartition>> owns = new LinkedHashMap<>();
        Map<String, Integer> generations = new LinkedHashMap<>();
        Set<TopicPartition> taken = new HashSet<>();
        for (int m = 0; m < size; m++) {
            String id = "member-" + (char) ('a' + draw.nextInt(26)) + m;
            List<String> wanted = names.stream().filter(t -> equal || draw.nextInt(3) > 0).collect(Collectors.toList());
            if (wanted.isEmpty()) wanted = List.of(names.get(0));
            List<TopicPartition> owned = new ArrayList<>();
            boolean isNew = draw.nextInt(4) == 0;
            for (String t : leftovers ? names : wanted)
                for (int p = 0; p < topics.get(t); p++) {
                    TopicPartition tp = new TopicPartition(t, p);
                    boolean again = draw.nextInt(20) == 0;
                    if (!isNew && draw.nextInt(size) == 0 && (again || !taken.contains(tp))) {
                        owned.add(tp);
                        taken.add(tp);
                    }
                }
            wants.put(id, wanted);
            owns.put(id, owned);
            generations.put(id, isNew ? -1 : !leftovers && draw.nextInt(wide ? 2 : 5) == 0
                ? Math.max(0, generation - 1 - (wide ? draw.nextInt(3) : 0)) : generation);
            rows.add(String.format("{\"id\":\"%s\",\"topics\":%s,\"owned\":%s,\"generation\":%d}", id,
                wanted.stream().map(t -> "\"" + t + "\"").collect(Collectors.joining(",", "[", "]")),
                list(owned), generations.get(id)));
        }
        StringBuilder line = new StringBuilder("{\"topics\":" + topics.entrySet().stream()
            .map(e -> "\"" + e.getKey() + "\":" + e.getValue()).collect(Collectors.joining(",", "{", "}")));
        line.append(",\"members\":").append(rows.stream().collect(Collectors.joining(",", "[", "]")));
        for (AbstractPartitionAssignor assignor : List.of(new RangeAssignor(), new RoundRobinAssignor(),
                new StickyByFields(), new CooperativeStickyAssignor())) {
            Map<String, Subscription> subscriptions = new HashMap<>();
            for (String id : wants.keySet())
                subscriptions.put(id, new Subscription(wants.get(id), null, owns.get(id), generations.get(id),
                    Optional.empty()));
            Map<String, Integer> counts = new HashMap<>();
            wants.values().forEach(w -> w.forEach(t -> counts.put(t, topics.get(t))));
            Map<String, List<TopicPartition>> result = new TreeMap<>(assignor.assign(counts, subscriptions));
            line.append(",\"" + assignor.name() + "\":").append(result.entrySet().stream()
                .map(e -> "\"" + e.getKey() + "\":" + list(e.getValue())).collect(Collectors.joining(",", "{", "}")));
        }
        return line.append("}").toString();
    }

    // StickyAssignor reads what was owned from bytes of its own; this one takes the fields, and decides the same.
    static class StickyByFields extends StickyAssignor {
        @Override
        protected MemberData memberData(Subscription s) {
            return new MemberData(s.ownedPartitions(), s.generationId());
        }
    }

    static String list(List<TopicPartition> partitions) {
        return partitions.stream().map(p -> "\"" + p.topic() + ":" + p.partition() + "\"")
            .collect(Collectors.joining(",", "[", "]"));
    }
}
