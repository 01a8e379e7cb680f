import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.Readable;

/**
 * Kafka's own codecs as a filter. Each input line is "class version hex": the bytes are read by that generated class,
 * must be used up, and are printed again as the class writes them. A line of one word asks for a table instead.
 */
public class MessageEcho {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            if (words[0].equals("apis")) {
                for (ApiKeys key : ApiKeys.values())
                    out.println("api " + key.id + " " + key.name() + " " + key.clusterAction + " " + key.forwardable);
            } else if (words[0].equals("errors")) {
                for (Errors error : Errors.values())
                    out.println("error " + error.code() + " " + error.name());
            } else {
                out.println(echo(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2])));
            }
        }
        out.flush();
    }

    private static String echo(String name, short version, byte[] bytes) {
        try {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            Object message = Class.forName(name)
                .getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining())
                return "left " + buffer.remaining() + " bytes";
            ByteBuffer written = MessageUtil.toByteBufferAccessor((Message) message, version).buffer();
            byte[] result = new byte[written.remaining()];
            written.get(result);
            return HexFormat.of().formatHex(result);
        } catch (Throwable error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return "failed " + cause;
        }
    }
}
