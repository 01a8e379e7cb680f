import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.utils.Exit;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Runs the main methods of Kafka's command-line tools one after another in one warm JVM, because a JVM start costs
 * two seconds and the tests call tools by the hundred.
 *
 * One JSON object per line in, {"main", "args", "stdin", "timeout_ms"}; one per line out, {"code", "stdout", "stderr",
 * "timed_out", "clients"}. A tool that ends through Exit is stopped by an Error, and the first status it asked for is
 * its code, as it would have been in a process of its own. On a time-out its shutdown hooks run, as on SIGTERM. The
 * Verifiable* tools use System.exit and the JVM's own hooks: they need a JVM of their own. Tools that rely on the end of their
 * process leave clients behind, which go on dialling brokers that are no more: "clients" says how many there are.
 */
public final class ToolHost {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long HOOK_MS = 10_000;

    /** Says nothing, because some tools catch and print everything that leaves their main. */
    private static final class Exited extends Error {
        Exited() {
            super("", null, false, false);
        }

        @Override
        public String toString() {
            return "";
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream replies = System.out;
        InputStream commands = System.in;
        BufferedReader reader = new BufferedReader(new InputStreamReader(commands, StandardCharsets.UTF_8));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            ObjectNode reply = run(JSON.readTree(line));
            replies.write(JSON.writeValueAsBytes(reply));
            replies.write('\n');
            replies.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static ObjectNode run(JsonNode command) throws Exception {
        PrintStream outBefore = System.out;
        PrintStream errBefore = System.err;
        InputStream inBefore = System.in;
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        List<Runnable> hooks = new CopyOnWriteArrayList<>();
        AtomicReference<Integer> code = new AtomicReference<>();

        System.setOut(new PrintStream(out, true, "UTF-8"));
        System.setErr(new PrintStream(err, true, "UTF-8"));
        System.setIn(new ByteArrayInputStream(command.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
        Exit.Procedure exit = (status, message) -> {
            code.compareAndSet(null, status);
            throw new Exited();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));

        List<String> args = new ArrayList<>();
        command.path("args").forEach(argument -> args.add(argument.asText()));
        Thread tool = new Thread(() -> invoke(command.path("main").asText(), args, code), "tool");
        tool.setDaemon(true);
        boolean timedOut = false;
        try {
            tool.start();
            tool.join(command.path("timeout_ms").asLong(60_000));
            timedOut = tool.isAlive();
            for (Runnable hook : hooks) {
                Thread shutdown = new Thread(hook, "hook");
                shutdown.setDaemon(true);
                shutdown.start();
                shutdown.join(HOOK_MS);
            }
            if (timedOut) {
                tool.join(HOOK_MS);
            }
            if (tool.isAlive()) {
                StringBuilder where = new StringBuilder("still running at:\n");
                for (StackTraceElement frame : tool.getStackTrace()) {
                    where.append("  ").append(frame).append('\n');
                }
                System.err.println(where);
                tool.interrupt();
                tool.join(HOOK_MS);
            }
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(outBefore);
            System.setErr(errBefore);
            System.setIn(inBefore);
        }
        ObjectNode reply = JSON.createObjectNode();
        reply.put("code", code.get() == null ? 0 : code.get());
        reply.put("stdout", out.toString(StandardCharsets.UTF_8));
        reply.put("stderr", err.toString(StandardCharsets.UTF_8));
        reply.put("timed_out", timedOut);
        reply.put("clients", Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("kafka-")).count());
        return reply;
    }

    private static void invoke(String name, List<String> args, AtomicReference<Integer> code) {
        try {
            Method main = Class.forName(name).getMethod("main", String[].class);
            main.invoke(null, (Object) args.toArray(new String[0]));
        } catch (InvocationTargetException wrapped) {
            if (!(wrapped.getCause() instanceof Exited)) {
                code.compareAndSet(null, 1);
                wrapped.getCause().printStackTrace(System.err);
            }
        } catch (ReflectiveOperationException missing) {
            code.compareAndSet(null, 127);
            missing.printStackTrace(System.err);
        }
    }

    private ToolHost() {
    }
}
