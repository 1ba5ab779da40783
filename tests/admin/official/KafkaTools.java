// Kafka's unmodified command line tools, many runs in one Java: a line of JSON in, a line of JSON out.
//
//   {"tool": "topics", "argv": ["--list"], "limit_s": 30}  ->  {"exit": 0, "out": "...", "err": "..."}
//
// Each run has its own thread. What it prints goes to buffers. Exit ends the run, not the Java: it notes the status,
// silences what comes after it, and unwinds. `exit` is null for a run that does not end in time.
// Started by official/tools.py; the class path holds Kafka's jars and so Jackson.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

public class KafkaTools {
    static final Map<String, String> CLASSES = Map.of(
        "topics", "org.apache.kafka.tools.TopicCommand",
        "reassign-partitions", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "leader-election", "org.apache.kafka.tools.LeaderElectionCommand",
        "configs", "kafka.admin.ConfigCommand",
        "log-dirs", "org.apache.kafka.tools.LogDirsCommand",
        "consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "get-offsets", "org.apache.kafka.tools.GetOffsetShell");

    /** What a run prints, until it is closed. */
    static final class Capture {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        Integer exit;

        synchronized void end(int status) {
            if (exit == null) {
                exit = status;
            }
        }

        synchronized boolean ended() {
            return exit != null;
        }
    }

    static volatile Capture current = new Capture();

    /** Writes to the present run; one stream for all time, because Scala and log4j keep the one they first saw. */
    static PrintStream routed(boolean isError) {
        return new PrintStream(new OutputStream() {
            @Override
            public void write(int b) {
                write(new byte[] {(byte) b}, 0, 1);
            }

            @Override
            public void write(byte[] bytes, int offset, int length) {
                Capture capture = current;
                synchronized (capture) {
                    if (capture.exit == null) {
                        (isError ? capture.err : capture.out).write(bytes, offset, length);
                    }
                }
            }
        }, true, StandardCharsets.UTF_8);
    }

    static final class Ended extends Error {
        Ended() {
            super("ended", null, false, false);
        }
    }

    static void run(String tool, String[] argv, Capture capture) {
        try {
            Class.forName(CLASSES.get(tool)).getMethod("main", String[].class).invoke(null, (Object) argv);
            capture.end(0);
        } catch (InvocationTargetException thrown) {
            if (!capture.ended()) {
                System.err.print("Exception in thread \"main\" ");
                thrown.getCause().printStackTrace();
                capture.end(1);
            }
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            capture.end(127);
        }
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(routed(false));
        System.setErr(routed(true));
        Exit.Procedure end = (status, message) -> {
            current.end(status);
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        ObjectMapper json = new ObjectMapper();
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            JsonNode request = json.readTree(line);
            String[] argv = json.convertValue(request.get("argv"), String[].class);
            String tool = request.get("tool").asText();
            Capture capture = new Capture();
            current = capture;
            Thread thread = new Thread(() -> run(tool, argv, capture), "main");
            thread.setDaemon(true);
            thread.start();
            thread.join(1000L * request.get("limit_s").asLong());
            Map<String, Object> answer = new LinkedHashMap<>();
            synchronized (capture) {
                answer.put("exit", capture.exit);
                answer.put("out", capture.out.toString(StandardCharsets.UTF_8));
                answer.put("err", capture.err.toString(StandardCharsets.UTF_8));
                capture.exit = capture.exit == null ? Integer.valueOf(-1) : capture.exit;
            }
            answers.println(json.writeValueAsString(answer));
        }
    }
}
