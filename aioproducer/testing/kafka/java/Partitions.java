import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/**
 * Prints the hash and the partition that Kafka's own producer computes for keys.
 *
 * <p>Argument: the number of partitions. Standard input: the number of keys as an int, then each key as its length and
 * its bytes. Standard output: for each key its murmur2 and its partition, both as an int.
 */
public final class Partitions {
    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[0]);
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        for (int left = in.readInt(); left > 0; left--) {
            byte[] key = in.readNBytes(in.readInt());
            out.writeInt(Utils.murmur2(key));
            out.writeInt(BuiltInPartitioner.partitionForKey(key, partitions));
        }
        out.flush();
    }
}
