import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.TreeMap;

/**
 * Apache Pulsar's official Java clients, by their own words only: Program SCENARIO SERVICE_URL ADMIN_URL NAME. With - in place of the
 * scenario and no name, lines "SCENARIO NAME" are read, and each is answered with PASSED or FAILED, so that one machine serves for many.
 */
public final class Program {
    interface Scenario {
        void run(World world) throws Exception;
    }

    private static final Map<String, Scenario> SCENARIOS = new TreeMap<>();

    static void register(String name, Scenario scenario) {
        SCENARIOS.put(name, scenario);
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        Scenarios.registerAll();
        SchemaScenarios.registerAll();
        SchemaCrossScenarios.registerAll();
        AdminScenarios.registerAll();
        CompactionScenarios.registerAll();
        CrossScenarios.registerAll();
        EncryptionScenarios.registerAll();
        MoreScenarios.registerAll();
        CredentialTrials.registerAll();
        if (!arguments[0].equals("-")) {
            System.exit(run(arguments[0], arguments[1], arguments[2], arguments[3]) ? 0 : 1);
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            say(run(words[0], arguments[1], arguments[2], words[1]) ? "PASSED" : "FAILED");
        }
        System.exit(0);
    }

    private static boolean run(String scenario, String serviceUrl, String adminUrl, String name) {
        try (World world = new World(serviceUrl, adminUrl, name)) {
            SCENARIOS.get(scenario).run(world);
            return true;
        } catch (Throwable error) {
            error.printStackTrace();
            return false;
        }
    }
}
