import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** Content that only clients can read, which brokers and proxies carry as it is. */
final class EncryptionScenarios {
    private EncryptionScenarios() {}

    static void registerAll() {
        Program.register("encrypted", EncryptionScenarios::encrypted);
        Program.register("encrypted_publish", EncryptionScenarios::publish);
        Program.register("encrypted_consume", EncryptionScenarios::consume);
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

    /** A key pair that the test has put into the topic NAME-keys, in PEM. */
    private record Given(Map<String, byte[]> keys) implements CryptoKeyReader {
        static Given of(World world) throws Exception {
            Map<String, byte[]> keys = new HashMap<>();
            try (Reader<byte[]> reader = world.client.newReader()
                    .topic(world.topic + "-keys")
                    .startMessageId(MessageId.earliest)
                    .create()) {
                while (keys.size() < 2) {
                    Message<byte[]> message = reader.readNext(World.RECEIVE_SECONDS, TimeUnit.SECONDS);
                    keys.put(message.getKey(), message.getData());
                }
            }
            return new Given(keys);
        }

        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return new EncryptionKeyInfo(keys.get("public"), Map.of("version", "3"));
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return new EncryptionKeyInfo(keys.get("private"), metadata);
        }
    }

    private static final List<String> WAYS = List.of("single", "batched", "chunked");
    private static final int COUNT = 5;

    private static byte[] content(String way, int number) {
        byte[] content = new byte[way.equals("chunked") ? 12 << 20 : 100];
        Arrays.fill(content, (byte) number);
        // Packed, it stays too large for one entry.
        Random random = new Random(number);
        for (int index = 0; way.equals("chunked") && index < content.length; index += 2) {
            content[index] = (byte) random.nextInt();
        }
        return content;
    }

    /** Publish what our own client reads. */
    private static void publish(World world) throws Exception {
        Given keys = Given.of(world);
        for (String way : WAYS) {
            try (Producer<byte[]> producer = world.client.newProducer()
                    .topic(world.topic + "-" + way)
                    .enableBatching(way.equals("batched"))
                    .batchingMaxPublishDelay(1, TimeUnit.MINUTES)
                    .enableChunking(way.equals("chunked"))
                    .compressionType(way.equals("single") ? CompressionType.NONE : CompressionType.LZ4)
                    .addEncryptionKey("own")
                    .cryptoKeyReader(keys)
                    .create()) {
                int count = way.equals("chunked") ? 1 : COUNT;
                for (int number = 0; number < count; number++) {
                    byte[] content = content(way, number);
                    CRC32 sum = new CRC32();
                    sum.update(content);
                    producer.newMessage().value(content).property("crc", "" + sum.getValue()).sendAsync();
                }
                producer.flush();
            }
        }
    }

    /** Consume what our own client published in the same ways. */
    private static void consume(World world) throws Exception {
        Given keys = Given.of(world);
        for (String way : WAYS) {
            try (Consumer<byte[]> consumer = world.client.newConsumer()
                    .topic(world.topic + "-" + way)
                    .subscriptionName("java")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                    .cryptoKeyReader(keys)
                    .subscribe()) {
                for (Message<byte[]> message : World.take(consumer, way.equals("chunked") ? 1 : COUNT)) {
                    CRC32 sum = new CRC32();
                    sum.update(message.getData());
                    World.same("" + sum.getValue(), message.getProperty("crc"));
                    World.isTrue(message.getEncryptionCtx().isPresent(), "it was encrypted");
                }
            }
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
