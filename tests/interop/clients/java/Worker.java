import org.apache.kafka.connect.cli.ConnectDistributed;

/** A Kafka Connect worker in distributed mode: Worker PROPERTIES. */
public final class Worker {
    public static void main(String[] arguments) {
        ConnectDistributed.main(arguments);
    }
}
