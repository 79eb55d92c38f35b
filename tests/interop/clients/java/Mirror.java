import org.apache.kafka.connect.mirror.MirrorMaker;

/** MirrorMaker 2 in dedicated mode: Mirror PROPERTIES. */
public final class Mirror {
    public static void main(String[] arguments) {
        MirrorMaker.main(arguments);
    }
}
