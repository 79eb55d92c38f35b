import java.security.MessageDigest;
import java.util.Arrays;
import java.util.zip.CRC32;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/**
 * The CRC-32 of the partitions (a byte each) of ten thousand keys, as Apache Kafka's producer chooses them. Key n is the first
 * n % 65 bytes of the SHA-512 of n's decimal digits. For test_partitioner.py; runs with kafka-clients on the class path.
 */
public class Partitions {
    public static void main(String[] args) throws Exception {
        for (int partitions : new int[] {1, 7, 50, 100}) {
            CRC32 crc = new CRC32();
            for (int number = 0; number < 10_000; number++) {
                byte[] whole = MessageDigest.getInstance("SHA-512").digest(Integer.toString(number).getBytes());
                crc.update(BuiltInPartitioner.partitionForKey(Arrays.copyOf(whole, number % 65), partitions));
            }
            System.out.println(partitions + " " + Long.toHexString(crc.getValue()));
        }
    }
}
