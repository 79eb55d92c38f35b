// Kafka's own message classes behind standard input and output: what they read, what they write again, what they refuse.
//
//   java MessageOracle LABEL=FOLDER ...    each folder holds the jars of one release; each gets a class loader of its own
//
// Frames, all big-endian, in both directions: i32 size, then size bytes.
//   question   u16 length, "LABEL/Message" | i16 version to read | i16 version to write | the message
//   answer     u8 status | i32 length, bytes | JSON
// Status 0: read and written; the bytes, and the values as Kafka's JsonConverter tells them in the version read.
// Status 1: the values cannot travel in the version to write (UnsupportedVersionException or a null where none may be).
// Status 2: anything else went wrong. With 1 and 2 the JSON is the exception's text.
// A version to read of -1 asks for [lowest, highest] supported version, or null for a message that the release lacks.

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.EOFException;
import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.jar.JarFile;

public class MessageOracle {
    /** One message class of one release. */
    static class Codec {
        final Constructor<?> reader;
        final Constructor<?> accessor;
        final Method remaining;
        final Constructor<?> cache;
        final Method size;
        final Method write;
        final Method json;
        final int lowest;
        final int highest;

        Codec(ClassLoader release, String name) throws Exception {
            String common = "org.apache.kafka.common.protocol.";
            Class<?> type = release.loadClass(name);
            Class<?> accessorType = release.loadClass(common + "ByteBufferAccessor");
            Class<?> message = release.loadClass(common + "Message");
            reader = type.getConstructor(release.loadClass(common + "Readable"), short.class);
            accessor = accessorType.getConstructor(ByteBuffer.class);
            remaining = accessorType.getMethod("remaining");
            Class<?> cacheType = release.loadClass(common + "ObjectSerializationCache");
            cache = cacheType.getConstructor();
            size = message.getMethod("size", cacheType, short.class);
            write = message.getMethod("write", release.loadClass(common + "Writable"), cacheType, short.class);
            Method found = null;
            try {
                found = release.loadClass(name + "JsonConverter").getMethod("write", type, short.class, boolean.class);
            } catch (ClassNotFoundException none) {
                // ProducerSnapshot and others of the storage module have a converter under another name, or none.
            }
            json = found;
            lowest = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
            highest = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
        }
    }

    /** The message classes of one release, by the name that Kafka's schema files give them. */
    static class Release {
        final ClassLoader loader;
        final Map<String, String> names = new HashMap<>();
        final Map<String, Codec> codecs = new HashMap<>();

        Release(File folder) throws Exception {
            List<URL> jars = new ArrayList<>();
            for (File file : folder.listFiles((where, name) -> name.endsWith(".jar"))) {
                jars.add(file.toURI().toURL());
                if (!file.getName().startsWith("kafka-")) continue;
                try (JarFile jar = new JarFile(file)) {
                    jar.stream().map(entry -> entry.getName()).forEach(this::keep);
                }
            }
            loader = new URLClassLoader(jars.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
        }

        private void keep(String path) {
            boolean generated = path.startsWith("org/apache/kafka/common/message/")
                || path.startsWith("org/apache/kafka/common/metadata/") || path.contains("/generated/");
            if (!generated || !path.endsWith(".class") || path.contains("$") || path.endsWith("JsonConverter.class")) return;
            String simple = path.substring(path.lastIndexOf('/') + 1, path.length() - 6);
            String name = simple.replaceFirst("(Request|Response|Header)Data$", "$1");
            names.put(name, path.substring(0, path.length() - 6).replace('/', '.'));
        }

        Codec codec(String name) throws Exception {
            String type = names.get(name);
            if (type == null) return null;
            Codec codec = codecs.get(name);
            if (codec == null) {
                codec = new Codec(loader, type);
                codecs.put(name, codec);
            }
            return codec;
        }
    }

    static class Answer {
        int status;
        byte[] data = new byte[0];
        String json;

        Answer(int status, String json) {
            this.status = status;
            this.json = json;
        }
    }

    static Answer answer(Codec codec, short read, short write, ByteBuffer data) throws Exception {
        try {
            Object source = codec.accessor.newInstance(data);
            Object message = codec.reader.newInstance(source, read);
            int left = (Integer) codec.remaining.invoke(source);
            if (left != 0) return new Answer(2, left + " bytes were not read");
            Object cache = codec.cache.newInstance();
            ByteBuffer written = ByteBuffer.allocate((Integer) codec.size.invoke(message, cache, write));
            codec.write.invoke(message, codec.accessor.newInstance(written), cache, write);
            written.flip();
            String json = codec.json == null ? "null" : String.valueOf(codec.json.invoke(null, message, read, false));
            Answer answer = new Answer(0, json);
            answer.data = new byte[written.remaining()];
            written.get(answer.data);
            return answer;
        } catch (InvocationTargetException wrapped) {
            Throwable cause = wrapped.getCause();
            String kind = cause.getClass().getSimpleName();
            boolean refused = kind.equals("UnsupportedVersionException") || kind.equals("NullPointerException");
            return new Answer(refused ? 1 : 2, String.valueOf(cause));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Release> releases = new HashMap<>();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            releases.put(argument.substring(0, equals), new Release(new File(argument.substring(equals + 1))));
        }
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        // Whatever Kafka's classes or their logger print must not run into the answers.
        System.setOut(System.err);
        while (true) {
            byte[] frame;
            try {
                frame = new byte[in.readInt()];
            } catch (EOFException done) {
                return;
            }
            in.readFully(frame);
            ByteBuffer question = ByteBuffer.wrap(frame);
            byte[] label = new byte[question.getShort()];
            question.get(label);
            String[] name = new String(label, StandardCharsets.UTF_8).split("/");
            short read = question.getShort();
            short write = question.getShort();
            Codec codec = releases.get(name[0]).codec(name[1]);
            Answer answer;
            if (read < 0) {
                answer = new Answer(0, codec == null ? "null" : "[" + codec.lowest + "," + codec.highest + "]");
            } else {
                answer = answer(codec, read, write, question.slice());
            }
            byte[] text = answer.json.getBytes(StandardCharsets.UTF_8);
            out.writeInt(5 + answer.data.length + text.length);
            out.writeByte(answer.status);
            out.writeInt(answer.data.length);
            out.write(answer.data);
            out.write(text);
            out.flush();
        }
    }
}
