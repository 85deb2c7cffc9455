// Kafka's own tools, one after the other in one JVM, because starting one takes longer than most of what it does.
//
//   java -cp 'libs/*' Tools HOST:PORT < commands
//
// A command is a line: the class of a tool, its arguments, and behind "<<<" what it reads, with \n for the ends of lines.
// "@" among the arguments is HOST:PORT. Prints the command after "== ", then what the tool said to either output.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    /** A broker hears of a change from its controller a few ms after the tool has, and nothing says when. */
    static final int CONTROLLER_MS = 400;

    static final class Ended extends Error {
        Ended(String message) {
            super(message, null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(new PrintStream(System.out, true, StandardCharsets.UTF_8));
        System.setErr(System.out);
        Exit.Procedure exit = (status, message) -> {
            throw new Ended("exit " + status + (message == null ? "" : ": " + message));
        };
        List<Runnable> hooks = new ArrayList<>();
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        InputStream ours = System.in;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            System.out.println("== " + line);
            String[] parts = line.split(" <<< ");
            List<String> words = new ArrayList<>(List.of(parts[0].trim().split(" +")));
            words.replaceAll(word -> word.replace("@", arguments[0]));
            String tool = words.remove(0);
            String read = parts.length > 1 ? parts[1].replace("\\n", "\n") + "\n" : "";
            System.setIn(new ByteArrayInputStream(read.getBytes(StandardCharsets.UTF_8)));
            try {
                Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) words.toArray(new String[0]));
            } catch (InvocationTargetException wrapped) {
                Throwable problem = wrapped.getCause();
                System.out.println(problem instanceof Ended ? problem.getMessage() : problem.toString());
            }
            hooks.forEach(Runnable::run);
            hooks.clear();
            System.out.flush();
            if (words.contains("--create") || words.contains("--alter") || words.contains("--delete"))
                Thread.sleep(CONTROLLER_MS);
        }
        System.setIn(ours);
        System.out.println("== done");
        Runtime.getRuntime().halt(0);
    }
}
