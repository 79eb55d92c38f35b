// How Apache Kafka itself refuses a request: AbstractRequest.getErrorResponse, behind standard input and output.
//
//   java -cp 'kafka/*' ErrorResponses.java
//
// Frames, all big-endian, in both directions: i32 size, then size bytes.
//   question   i16 API key | i16 version | i16 error code | the request's body
//   answer     the response's body; nothing where Kafka has no such response

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestAndSize;

public class ErrorResponses {
    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (true) {
            byte[] question;
            try {
                question = new byte[in.readInt()];
            } catch (EOFException end) {
                return;
            }
            in.readFully(question);
            ByteBuffer answer = answer(ByteBuffer.wrap(question));
            out.writeInt(answer.remaining());
            out.write(answer.array(), answer.arrayOffset() + answer.position(), answer.remaining());
            out.flush();
        }
    }

    /** Kafka 3 reads a request from a buffer, Kafka 4 from an accessor of one. */
    static AbstractRequest parse(ApiKeys api, short version, ByteBuffer body) throws Exception {
        for (Method method : AbstractRequest.class.getMethods()) {
            if (method.getName().equals("parseRequest")) {
                boolean plain = method.getParameterTypes()[2] == ByteBuffer.class;
                Object parsed = method.invoke(null, api, version, plain ? body : new ByteBufferAccessor(body));
                return ((RequestAndSize) parsed).request;
            }
        }
        throw new NoSuchMethodException("parseRequest");
    }

    static ByteBuffer answer(ByteBuffer question) {
        short key = question.getShort();
        short version = question.getShort();
        Errors error = Errors.forCode(question.getShort());
        try {
            AbstractRequest request = parse(ApiKeys.forId(key), version, question.slice());
            AbstractResponse response = request.getErrorResponse(0, error.exception());
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer body = ByteBuffer.allocate(response.data().size(cache, version));
            response.data().write(new ByteBufferAccessor(body), cache, version);
            body.flip();
            return body;
        } catch (Exception cause) {
            System.err.println(key + " " + version + ": " + cause);
            return ByteBuffer.allocate(0);
        }
    }
}
