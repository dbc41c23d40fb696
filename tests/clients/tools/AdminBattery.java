import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

/**
 * Apache Pulsar's pulsar-admin, many commands in one process. Arguments: the URLs of the administration and of the service. A line of
 * standard input is a command, its words with tabs between; the answer is a line "=", the exit code, a tab and what the command printed,
 * with \n and \\ for the line feeds and backslashes of it.
 */
public final class AdminBattery {
    private AdminBattery() {
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("webServiceUrl", arguments[0]);
        settings.setProperty("brokerServiceUrl", arguments[1]);
        Method run = PulsarAdminTool.class.getDeclaredMethod("run", String[].class);
        run.setAccessible(true);
        PulsarAdminTool tool = new PulsarAdminTool(settings);
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(stream);
            System.setErr(stream);
            Object done = run.invoke(tool, (Object) line.split("\t"));
            String text = said.toString(StandardCharsets.UTF_8).replace("\\", "\\\\").replace("\n", "\\n");
            answers.println("=" + (Boolean.TRUE.equals(done) ? 0 : 1) + "\t" + text);
            answers.flush();
        }
        System.exit(0); // its clients' threads go on
    }
}
