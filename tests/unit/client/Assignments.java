// What Apache Kafka's own assignors do, for tests/unit/client/java_assignments.tsv (test_assignors.py says how to make it anew).
//
// A line in: members TAB topics, as "m0@r1:a,b m1@-:a" (rack - for none) and "a=12,1, b=..." (of each partition the racks,
// one character each). A line out: the same, then what range and roundrobin assign ("m0=a0,a1 m1="), then how many partitions
// are near under the sticky assignor, and how many each member has at most.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.common.*;

public class Assignments {
    static Map<String, String> racks = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] fields = line.split("\t");
            racks.clear();
            Map<String, Subscription> members = new TreeMap<>();
            for (String member : fields[0].split(" ")) {
                String[] parts = member.split("[@:]", -1);
                Optional<String> rack = parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]);
                racks.put(parts[0], parts[1]);
                members.put(parts[0], new Subscription(List.of(parts[2].split(",")), null, List.of(), -1, rack));
            }
            Map<Character, Node> nodes = new TreeMap<>();
            List<PartitionInfo> partitions = new ArrayList<>();
            for (String topic : fields[1].split(" ")) {
                String[] parts = topic.split("=");
                int index = 0;
                for (String replicas : parts[1].split(",", -1)) {
                    Node[] of = replicas.chars().mapToObj(c -> nodes.computeIfAbsent((char) c, k -> new Node(k, "h", k, "" + k)))
                        .toArray(Node[]::new);
                    partitions.add(new PartitionInfo(parts[0], index++, of.length == 0 ? null : of[0], of, of));
                }
            }
            Cluster cluster = new Cluster("c", nodes.values(), partitions, Set.of(), Set.of());
            GroupSubscription group = new GroupSubscription(members);
            Map<String, Assignment> sticky = new StickyAssignor().assign(cluster, group).groupAssignment();
            long near = sticky.entrySet().stream().mapToLong(e -> e.getValue().partitions().stream()
                .filter(p -> near(e.getKey(), cluster.partition(p))).count()).sum();
            System.out.println(line + "\t" + told(new RangeAssignor().assign(cluster, group)) + "\t"
                + told(new RoundRobinAssignor().assign(cluster, group)) + "\t" + near + "\t"
                + sticky.values().stream().mapToInt(a -> a.partitions().size()).max().getAsInt());
        }
    }

    static boolean near(String member, PartitionInfo partition) {
        String rack = racks.get(member);
        return rack.equals("-") || Arrays.stream(partition.replicas()).anyMatch(node -> rack.equals(node.rack()));
    }

    static String told(GroupAssignment assignment) {
        return new TreeMap<>(assignment.groupAssignment()).entrySet().stream().map(e -> e.getKey() + "="
            + e.getValue().partitions().stream().map(p -> p.topic() + p.partition()).collect(Collectors.joining(",")))
            .collect(Collectors.joining(" "));
    }
}
