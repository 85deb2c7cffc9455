// What Kafka's own classes make of the records of __transaction_state.
//
//   java -cp 'libs/*' TransactionRecords < records
//
// A record is a line: "key" or "value", and bytes in hex, version prefix included. Prints what they say as JSON, a tab,
// and the bytes that Kafka writes for it.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKeyJsonConverter;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValueJsonConverter;

public class TransactionRecords {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader records = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = records.readLine(); line != null; line = records.readLine()) {
            String[] words = line.split(" ");
            ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(words[1]));
            out.println(words[0].equals("key") ? key(data) : value(data));
        }
    }

    static String key(ByteBuffer data) {
        short version = data.getShort();
        TransactionLogKey key = new TransactionLogKey(new ByteBufferAccessor(data), version);
        return TransactionLogKeyJsonConverter.write(key, version) + "\t" + hex(MessageUtil.toVersionPrefixedBytes(version, key));
    }

    static String value(ByteBuffer data) {
        short version = data.getShort();
        TransactionLogValue value = new TransactionLogValue(new ByteBufferAccessor(data), version);
        return TransactionLogValueJsonConverter.write(value, version) + "\t" + hex(MessageUtil.toVersionPrefixedBytes(version, value));
    }

    static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }
}
