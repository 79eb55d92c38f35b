import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;

/** The step `admin`, from 0.11 on, with a look at the topic's configs. */
final class CreateAndDelete {
    private CreateAndDelete() {}

    /** What 0.11 calls `values`, 3.1 renamed to `topicNameValues`; 4.0 removed the old name. */
    @SuppressWarnings("unchecked")
    private static KafkaFuture<TopicDescription> described(AdminClient admin, String topic) throws Exception {
        DescribeTopicsResult result = admin.describeTopics(Collections.singleton(topic));
        Method futures = Arrays.stream(DescribeTopicsResult.class.getMethods())
                .filter(each -> each.getName().equals("topicNameValues") || each.getName().equals("values"))
                .min(Comparator.comparing(Method::getName))
                .get();
        return ((Map<String, KafkaFuture<TopicDescription>>) futures.invoke(result)).get(topic);
    }

    static void step(Contract task) {
        Contract.step("admin", () -> {
            Properties configs = new Properties();
            configs.put("bootstrap.servers", task.bootstrap);
            String topic = task.topic + "-made";
            try (AdminClient admin = AdminClient.create(configs)) {
                NewTopic wanted = new NewTopic(topic, 3, (short) 1)
                        .configs(Collections.singletonMap("retention.ms", "3600000"));
                admin.createTopics(Collections.singleton(wanted)).all().get(30, TimeUnit.SECONDS);
                Contract.equal(described(admin, topic).get(30, TimeUnit.SECONDS).partitions().size(), 3);
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                Contract.equal(
                        admin.describeConfigs(Collections.singleton(resource)).all().get(30, TimeUnit.SECONDS)
                                .get(resource).get("retention.ms").value(),
                        "3600000");
                Contract.equal(admin.describeCluster().nodes().get(30, TimeUnit.SECONDS).size(), 1);
                admin.deleteTopics(Collections.singleton(topic)).all().get(30, TimeUnit.SECONDS);
            }
        });
    }
}
