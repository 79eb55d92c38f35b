import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The task, the records and the telling that contract.py describes. Knows no Kafka class: it is compiled with every release. */
final class Contract {
    static final int SHARE = 100;
    private static boolean nulls = true;

    interface Step {
        void run() throws Exception;
    }

    final String bootstrap;
    final String host;
    final int port;
    final String topic;
    final String group;
    final List<String> codecs;
    final Map<String, String> settings = new HashMap<>();

    Contract(String[] arguments) {
        bootstrap = arguments[0];
        host = bootstrap.substring(0, bootstrap.lastIndexOf(':'));
        port = Integer.parseInt(bootstrap.substring(bootstrap.lastIndexOf(':') + 1));
        topic = arguments[1];
        group = arguments[2];
        codecs = Arrays.asList(arguments[3].split(","));
        for (int at = 4; at < arguments.length; at++) {
            String[] parts = arguments[at].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        nulls = !"no".equals(settings.get("nulls"));
    }

    /** How many records the produce steps write. */
    int first() {
        return SHARE * codecs.size();
    }

    static byte[] key(int number) {
        return ("key " + number).getBytes();
    }

    /** Every tenth is null, or empty with nulls=no. */
    static byte[] value(int number) {
        if (number % 10 == 9) {
            return nulls ? null : new byte[0];
        }
        byte[] head = ("value " + number + " ").getBytes();
        byte[] value = Arrays.copyOf(head, head.length + number % SHARE);
        for (int index = 0; index < number % SHARE; index++) {
            value[head.length + index] = (byte) (number + 31 * index);
        }
        return value;
    }

    static void same(int number, byte[] key, byte[] value) {
        if (!Arrays.equals(key, key(number)) || !Arrays.equals(value, value(number))) {
            throw new AssertionError("record " + number + " is " + Arrays.toString(key) + " " + Arrays.toString(value));
        }
    }

    static void equal(Object found, Object wanted) {
        if (!wanted.equals(found)) {
            throw new AssertionError(found + ", not " + wanted);
        }
    }

    /** What it throws is this step's failure, and the program goes on. */
    static void step(String name, Step step) {
        try {
            step.run();
            tell(name, "pass", "");
        } catch (Throwable failure) {
            failure.printStackTrace();
            tell(name, "fail", failure.toString());
        }
    }

    private static void tell(String name, String result, String why) {
        String safe = why.replaceAll("[^ -~]", " ").replace("\\", "/").replace("\"", "'");
        System.out.println("{\"step\": \"" + name + "\", \"result\": \"" + result + "\", \"why\": \"" + safe + "\"}");
        System.out.flush();
    }
}
