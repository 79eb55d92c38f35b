import java.util.List;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.ParsedSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.SchemaMetadata;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.SchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;

/** Confluent's client of a schema registry, as it is in Flink's jar: a line for each answer. */
public class SchemaClient {
    private static final String ONE =
            "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"n\",\"fields\":[{\"name\":\"id\",\"type\":\"long\"}]}";
    private static final String BROKEN = ONE.replace("}]}", "},{\"name\":\"note\",\"type\":\"string\"}]}");
    private static final String TWO = BROKEN.replace("\"string\"}]}", "\"string\",\"default\":\"\"}]}");

    public static void main(String[] arguments) throws Exception {
        SchemaRegistryClient client = new CachedSchemaRegistryClient(arguments[0], 100);
        int first = client.register("orders-value", new AvroSchema(ONE));
        System.out.println("registered " + first);
        // A client that keeps nothing: what it returns comes from the registry.
        SchemaRegistryClient other = new CachedSchemaRegistryClient(arguments[0], 100);
        ParsedSchema read = other.getSchemaById(first);
        System.out.println("same text " + read.canonicalString().equals(ONE));
        System.out.println("looked up " + (other.getId("orders-value", new AvroSchema(ONE)) == first));
        System.out.println("compatible " + other.testCompatibility("orders-value", new AvroSchema(BROKEN)));
        try {
            client.register("orders-value", new AvroSchema(BROKEN));
        } catch (RestClientException refused) {
            System.out.println("refused " + refused.getStatus());
        }
        int second = client.register("orders-value", new AvroSchema(TWO));
        SchemaMetadata latest = other.getLatestSchemaMetadata("orders-value");
        System.out.println("latest " + latest.getVersion() + " " + (latest.getId() == second));
        System.out.println("versions " + other.getAllVersions("orders-value"));
        System.out.println("subjects " + List.copyOf(other.getAllSubjects()));
        System.out.println("level " + other.updateCompatibility("orders-value", "FULL"));
        System.out.println("level " + other.getCompatibility("orders-value"));
        System.out.println("mode " + other.getMode());
        System.out.println("deleted " + other.deleteSubject("orders-value"));
        try {
            new CachedSchemaRegistryClient(arguments[0], 100).getLatestSchemaMetadata("orders-value");
        } catch (RestClientException missing) {
            System.out.println("missing " + missing.getErrorCode());
        }
    }
}
