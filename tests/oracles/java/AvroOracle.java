// Java's Avro behind standard input and output: how it prints schemas, and what it says of a reader and a writer.
//
// A line of input is a JSON array of two texts: reader, writer. A line of output is an object:
//   reader, writer   canonical text of each, or null and `refused`, why it was not parsed
//   found            [[kind, place, message], ...]; empty if the reader can read what the writer wrote
//   raised           the message of an exception instead of `found`

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaCompatibility.Incompatibility;

public class AvroOracle {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(MAPPER.writeValueAsString(answer(MAPPER.readTree(line))));
            answers.flush();
        }
    }

    private static ObjectNode answer(JsonNode pair) {
        ObjectNode answer = MAPPER.createObjectNode();
        Schema reader = parsed("reader", pair.get(0).textValue(), answer);
        Schema writer = parsed("writer", pair.get(1).textValue(), answer);
        if (reader == null || writer == null) {
            return answer;
        }
        ArrayNode found = MAPPER.createArrayNode();
        try {
            for (Incompatibility each : SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult()
                    .getIncompatibilities()) {
                found.add(MAPPER.createArrayNode().add(each.getType().name()).add(each.getLocation())
                        .add(each.getMessage()));
            }
            answer.set("found", found);
        } catch (RuntimeException raised) {
            answer.put("raised", String.valueOf(raised.getMessage()));
        }
        return answer;
    }

    private static Schema parsed(String name, String text, ObjectNode answer) {
        try {
            Schema schema = new Schema.Parser(NameValidator.STRICT_VALIDATOR).parse(text);
            answer.put(name, schema.toString());
            return schema;
        } catch (RuntimeException refused) {
            answer.putNull(name).put("refused", String.valueOf(refused.getMessage()));
            return null;
        }
    }
}
