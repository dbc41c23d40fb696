import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;

/** Content that only clients can read, which brokers and proxies carry as it is. */
final class EncryptionScenarios {
    private EncryptionScenarios() {}

    static void registerAll() {
        Program.register("encrypted", EncryptionScenarios::encrypted);
    }

    /** A key pair that only this program knows. */
    private record Keys(KeyPair pair) implements CryptoKeyReader {
        static Keys made() throws Exception {
            KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
            generator.initialize(2048);
            return new Keys(generator.generateKeyPair());
        }

        private static EncryptionKeyInfo written(String kind, byte[] key, Map<String, String> metadata) {
            String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(key);
            return new EncryptionKeyInfo(("-----BEGIN " + kind + "-----\n" + text + "\n-----END " + kind + "-----\n").getBytes(), metadata);
        }

        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return written("PUBLIC KEY", pair.getPublic().getEncoded(), metadata);
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return written("PRIVATE KEY", pair.getPrivate().getEncoded(), metadata);
        }
    }

    private static void encrypted(World world) throws Exception {
        Keys keys = Keys.made();
        for (String way : List.of("single", "batched")) {
            String topic = world.topic + "-" + way;
            Producer<String> producer = world.producer(topic)
                    .enableBatching(way.equals("batched"))
                    .compressionType(CompressionType.LZ4)
                    .addEncryptionKey("own")
                    .cryptoKeyReader(keys)
                    .create();
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (String text : World.range(0, 20)) {
                sent.add(producer.newMessage().value(text).key("k" + text).sendAsync());
            }
            producer.flush();
            for (CompletableFuture<MessageId> each : sent) {
                each.get();
            }
            Consumer<String> consumer = world.consumer(topic).cryptoKeyReader(keys).subscribe();
            List<Message<String>> messages = World.take(consumer, 20);
            World.same(World.values(messages), World.range(0, 20));
            World.same(messages.get(7).getKey(), "k7");
            World.nothingMore(consumer);
            consumer.close();
        }
        // Who has no key gets what the brokers had, which is not the content.
        Consumer<String> blind = world.consumer(world.topic + "-single")
                .subscriptionName("blind")
                .cryptoKeyReader(Keys.made())
                .cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME)
                .subscribe();
        int number = 0;
        for (Message<String> message : World.take(blind, 20)) {
            World.isTrue(message.getEncryptionCtx().isPresent(), "it says that it is encrypted");
            World.isTrue(!new String(message.getData()).equals("" + number++), "the content is not readable");
        }
        blind.close();
    }
}
