import java.io.*;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's tools one after the other in one JVM, as starting one takes more than a second.
 *
 * Read from standard input: a number of texts (int), then the class of a tool, its standard input, and its words (UTF). Written to standard output:
 * exit code (int; ENDED more if the tool has ended the JVM), length of what was printed (int), and that. The tools write to a buffer in place of standard output and error:
 * Scala's console keeps the stream that it finds first, which must be the same for all of them.
 */
public class KafkaTools {
    static final int ENDED = 1000;
    static final ByteArrayOutputStream printed = new ByteArrayOutputStream();
    static volatile Integer code;
    static volatile int length;
    static volatile boolean isBusy;
    static final List<Runnable> hooks = new ArrayList<>();

    static class Exited extends Error {}

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream results = new DataOutputStream(new BufferedOutputStream(System.out));
        PrintStream everything = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(everything);
        System.setErr(everything);
        Exit.setExitProcedure((status, text) -> exit(status, text));
        Exit.setHaltProcedure((status, text) -> exit(status, text));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        // Some tools end the JVM without Kafka's procedure.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                if (isBusy) answer(results, ENDED + (code == null ? 1 : code));
            } catch (IOException e) {
                // nobody reads any more
            }
        }));
        while (true) {
            isBusy = false;
            String[] words;
            String tool;
            try {
                words = new String[requests.readInt() - 2];
                tool = requests.readUTF();
                System.setIn(new ByteArrayInputStream(requests.readUTF().getBytes(StandardCharsets.UTF_8)));
                for (int i = 0; i < words.length; i++) words[i] = requests.readUTF();
            } catch (EOFException e) {
                return;
            }
            isBusy = true;
            code = null;
            printed.reset();
            forgetCount();
            try {
                Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) words);
            } catch (InvocationTargetException e) {
                if (!(e.getCause() instanceof Exited)) exitWith(1, "Exception: " + e.getCause());
            }
            for (Runnable hook : hooks) hook.run();  // the console producer sends the last records there
            hooks.clear();
            answer(results, code == null ? 0 : code);
        }
    }

    /** The console consumer counts the messages of all its runs. */
    static void forgetCount() throws Exception {
        Field count = Class.forName("org.apache.kafka.tools.consumer.ConsoleConsumer").getDeclaredField("messageCount");
        count.setAccessible(true);
        count.setInt(null, 0);
    }

    static void exit(int status, String text) {
        exitWith(status, text);
        throw new Exited();
    }

    /** The first exit counts: some tools catch it as an exception, print that, and exit again. */
    static void exitWith(int status, String text) {
        if (code == null) {
            if (text != null) System.err.println(text);
            code = status;
            length = printed.size();
        }
    }

    static void answer(DataOutputStream results, int status) throws IOException {
        results.writeInt(status);
        int count = code == null ? printed.size() : length;
        results.writeInt(count);
        results.write(printed.toByteArray(), 0, count);
        results.flush();
    }
}
