import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic with Kafka's own consumer, which checks every CRC, and writes what it saw to standard output.
 *
 * <p>Arguments: records|digest, topic, the most records to read (-1: no limit), the longest wait for the next record in
 * ms, start offsets as "partition=offset,..." (may be empty), then consumer properties as name=value. It reads up to the
 * end that the partitions had at the start; with isolation.level=read_committed that is the last stable offset.
 *
 * <p>records: a byte 'R' before each record, at the end 'E' and the count as a long. digest: lines of JSON.
 */
public final class ReadBack {
    private static final Duration POLL = Duration.ofMillis(200);

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, Long> ends;
    private final long most;
    private final long patienceMs;

    private ReadBack(KafkaConsumer<byte[], byte[]> consumer, String topic, long most, long patienceMs, String starts) {
        this.consumer = consumer;
        this.most = most;
        this.patienceMs = patienceMs;
        List<TopicPartition> partitions = new ArrayList<>();
        consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        for (String start : starts.isEmpty() ? new String[0] : starts.split(",")) {
            String[] pair = start.split("=");
            consumer.seek(new TopicPartition(topic, Integer.parseInt(pair[0])), Long.parseLong(pair[1]));
        }
        this.ends = consumer.endOffsets(partitions);
    }

    public static void main(String[] arguments) throws Exception {
        exitWithParent();
        Properties properties = new Properties();
        properties.put(ConsumerConfig.CHECK_CRCS_CONFIG, "true");
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        properties.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, "false");
        for (int i = 5; i < arguments.length; i++) {
            int equals = arguments[i].indexOf('=');
            properties.put(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
        }
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        Sink sink = arguments[0].equals("digest") ? new DigestSink(out) : new RecordSink(out);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            long most = Long.parseLong(arguments[2]);
            new ReadBack(consumer, arguments[1], most, Long.parseLong(arguments[3]), arguments[4]).read(sink);
        }
        out.flush();
    }

    /** Standard input is a pipe from the process that started us; it ends when that process does, however it ends. */
    private static void exitWithParent() {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (IOException gone) {
                // as good as its end
            }
            Runtime.getRuntime().halt(3);
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private void read(Sink sink) throws Exception {
        long count = 0;
        long deadline = System.nanoTime() + patienceMs * 1_000_000;
        while (count != most && !isAtEnd()) {
            var records = consumer.poll(POLL);
            for (ConsumerRecord<byte[], byte[]> record : records) {
                boolean wanted = record.offset() < ends.get(new TopicPartition(record.topic(), record.partition()));
                if (count == most || !wanted) {
                    continue;
                }
                sink.take(record);
                count++;
            }
            if (!records.isEmpty()) {
                deadline = System.nanoTime() + patienceMs * 1_000_000;
            } else if (System.nanoTime() > deadline) {
                throw new IllegalStateException("No record came for " + patienceMs + " ms; " + count + " were read, ends "
                    + ends + ", positions " + positions());
            }
        }
        sink.end(count);
    }

    private boolean isAtEnd() {
        return ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
    }

    private Map<Integer, Long> positions() {
        Map<Integer, Long> positions = new TreeMap<>();
        ends.keySet().forEach(p -> positions.put(p.partition(), consumer.position(p)));
        return positions;
    }

    private interface Sink {
        void take(ConsumerRecord<byte[], byte[]> record) throws Exception;

        void end(long count) throws Exception;
    }

    private static void writeBytes(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes == null ? -1 : bytes.length);
        if (bytes != null) {
            out.write(bytes);
        }
    }

    private record RecordSink(DataOutputStream out) implements Sink {
        @Override
        public void take(ConsumerRecord<byte[], byte[]> record) throws IOException {
            out.writeByte('R');
            out.writeInt(record.partition());
            out.writeLong(record.offset());
            out.writeLong(record.timestamp());
            out.writeByte(record.timestampType().id);
            writeBytes(out, record.key());
            writeBytes(out, record.value());
            out.writeInt(record.headers().toArray().length);
            for (Header header : record.headers()) {
                writeBytes(out, header.key().getBytes(StandardCharsets.UTF_8));
                writeBytes(out, header.value());
            }
        }

        @Override
        public void end(long count) throws IOException {
            out.writeByte('E');
            out.writeLong(count);
        }
    }

    /** One partition's records in their order: each field is its length (-1: null) as an int and its bytes. */
    private static final class Digest {
        final MessageDigest sha256;
        long count = 0;
        long bytes = 0;
        long first = -1;
        long last = -1;
        boolean ascending = true;

        Digest() throws Exception {
            sha256 = MessageDigest.getInstance("SHA-256");
        }

        void take(ConsumerRecord<byte[], byte[]> record) {
            ascending &= record.offset() > last;
            first = count == 0 ? record.offset() : first;
            last = record.offset();
            count++;
            field(record.key());
            field(record.value());
            Header[] headers = record.headers().toArray();
            sha256.update(ByteBuffer.allocate(4).putInt(headers.length).array());
            for (Header header : headers) {
                field(header.key().getBytes(StandardCharsets.UTF_8));
                field(header.value());
            }
        }

        void field(byte[] field) {
            sha256.update(ByteBuffer.allocate(4).putInt(field == null ? -1 : field.length).array());
            if (field != null) {
                sha256.update(field);
                bytes += field.length;
            }
        }

        String json(int partition) {
            StringBuilder hex = new StringBuilder();
            for (byte b : sha256.digest()) {
                hex.append(String.format("%02x", b));
            }
            return String.format(
                "{\"partition\": %d, \"count\": %d, \"size\": %d, \"first_offset\": %d, \"last_offset\": %d,"
                    + " \"offsets_ascend\": %b, \"sha256\": \"%s\"}%n",
                partition, count, bytes, first, last, ascending, hex);
        }
    }

    private static final class DigestSink implements Sink {
        private final DataOutputStream out;
        private final Map<Integer, Digest> digests = new TreeMap<>();

        DigestSink(DataOutputStream out) {
            this.out = out;
        }

        @Override
        public void take(ConsumerRecord<byte[], byte[]> record) throws Exception {
            Digest digest = digests.get(record.partition());
            if (digest == null) {
                digest = new Digest();
                digests.put(record.partition(), digest);
            }
            digest.take(record);
        }

        @Override
        public void end(long count) throws IOException {
            for (Map.Entry<Integer, Digest> entry : digests.entrySet()) {
                out.writeBytes(entry.getValue().json(entry.getKey()));
            }
        }
    }
}
