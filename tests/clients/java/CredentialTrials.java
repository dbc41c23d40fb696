import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;
import org.apache.pulsar.client.impl.auth.AuthenticationToken;

/**
 * Tries shapes of credentials: standard input has a shape a line, as JSON, and a line of standard output with "=" before it has its name
 * and result, which is ok or the name and text of the error.
 */
final class CredentialTrials {
    private static final int TRIALS_AT_A_TIME = 16;
    private static final int MESSAGE_SECONDS = 90;
    private static final ObjectMapper JSON = new ObjectMapper();

    private CredentialTrials() {
    }

    static void registerAll() {
        Program.register("credentials", world -> tryAll());
    }

    private static void tryAll() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(TRIALS_AT_A_TIME);
        List<Future<?>> trials = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode shape = JSON.readTree(line);
            trials.add(pool.submit(() -> {
                List<String> answer = List.of(shape.get("name").asText(), attempt(shape));
                Program.say("=" + JSON.writeValueAsString(answer));
                return null;
            }));
        }
        for (Future<?> trial : trials) {
            trial.get();
        }
        pool.shutdown();
    }

    private static Authentication authentication(String plugin, String params) throws Exception {
        String[] parts = params.split(",");
        switch (plugin) {
            case "":
                return null;
            case "new token":
                return AuthenticationFactory.token(params);
            case "new supplier":
                return AuthenticationFactory.token(() -> read(params));
            case "new file":
                return AuthenticationFactory.create(AuthenticationToken.class.getName(), "file://" + params);
            case "new tls":
                return AuthenticationFactory.TLS(parts[0], parts[1]);
            case "new basic":
                return basic(parts, "basic");
            case "new method":
                return basic(parts, parts[2]);
            default:
                return AuthenticationFactory.create(plugin, params);
        }
    }

    private static String read(String path) {
        try {
            return Files.readString(Path.of(path));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static Authentication basic(String[] parts, String method) throws Exception {
        AuthenticationBasic found = new AuthenticationBasic() {
            @Override
            public String getAuthMethodName() {
                return method;
            }
        };
        found.configure(JSON.writeValueAsString(Map.of("userId", parts[0], "password", parts[1])));
        return found;
    }

    private static String attempt(JsonNode shape) {
        int seconds = shape.get("seconds").asInt();
        String topic = shape.get("topic").asText();
        try (PulsarClient client = PulsarClient.builder()
                .serviceUrl(shape.get("url").asText())
                .authentication(authentication(shape.get("plugin").asText(), shape.get("params").asText()))
                .tlsTrustCertsFilePath(shape.get("trust").asText())
                .enableTlsHostnameVerification(shape.get("verifies").asBoolean())
                .allowTlsInsecureConnection(shape.get("insecure").asBoolean())
                .ioThreads(1)
                .listenerThreads(1)
                .operationTimeout(seconds, TimeUnit.SECONDS)
                .lookupTimeout(seconds, TimeUnit.SECONDS)
                .build()) {
            Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscribe();
            if (!shape.get("receives_only").asBoolean()) {
                Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).create();
                producer.send("shown");
            }
            Message<String> message = consumer.receive(MESSAGE_SECONDS, TimeUnit.SECONDS);
            return message != null && message.getValue().equals("shown") ? "ok" : "another message";
        } catch (Exception error) {
            return error.getClass().getSimpleName() + ": " + error.getMessage();
        }
    }
}
