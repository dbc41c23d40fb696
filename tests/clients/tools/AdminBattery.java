import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

/**
 * Apache Pulsar's pulsar-admin, many commands in one process. Arguments: the URLs of the administration and of the service. A line of
 * standard input is a command, its words with tabs between; the answer is a line "=", the exit code, a tab and what the command printed,
 * with \n and \\ for the line feeds and backslashes of it. Words "NAME=VALUE" before the command are settings for this line, which add to
 * those of the file client.conf.
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
        PulsarAdminTool shared = new PulsarAdminTool(settings);
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(stream);
            System.setErr(stream);
            String[] words = line.split("\t");
            Properties more = new Properties();
            more.putAll(settings);
            int at = 0;
            for (; words[at].matches("[A-Za-z]+=.*"); at++) {
                more.setProperty(words[at].substring(0, words[at].indexOf('=')), words[at].substring(words[at].indexOf('=') + 1));
            }
            // A tool keeps its settings, and the stream that was System.out when it was made.
            PulsarAdminTool tool = at == 0 ? shared : new PulsarAdminTool(more);
            Object done = run.invoke(tool, (Object) Arrays.copyOfRange(words, at, words.length));
            String text = said.toString(StandardCharsets.UTF_8).replace("\\", "\\\\").replace("\n", "\\n");
            answers.println("=" + (Boolean.TRUE.equals(done) ? 0 : 1) + "\t" + text);
            answers.flush();
        }
        System.exit(0); // its clients' threads go on
    }
}
