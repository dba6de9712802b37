package eruca.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The rows of {@code make peers} through RocketMQ's own client, asked for by lines of JSON.
 *
 * <p>Usage: java eruca.interop.Workload HOST:PORT (of a name server). Each request is answered by
 * {"began": true} when its measurement begins, and by {"messages": …, "seconds": …} or
 * {"error": …} when it ends. The program ends with its input.
 */
public final class Workload implements AutoCloseable {
    private static final String SENT = "sends";
    private static final String BACKLOG = "backlog";
    private static final int BODY_SIZE = 1024;
    private static final int BATCH = 1_000;
    private static final int IN_FLIGHT = 64;
    private static final int DELAY_MILLIS = 3_600_000;
    private static final long SEND_MILLIS_MAX = 10_000;
    private static final long LATEST = System.currentTimeMillis() + 86_400_000L;

    private final PrintStream answers;
    private final String nameServer;
    private final DefaultMQProducer producer = new DefaultMQProducer("peers-producer");
    private final TransactionMQProducer transactions =
        new TransactionMQProducer("peers-transactions");
    private final byte[] body = new byte[BODY_SIZE];
    private final AtomicLong keys = new AtomicLong();
    private long backlog;

    private Workload(String nameServer, PrintStream answers) throws Exception {
        this.nameServer = nameServer;
        this.answers = answers;
        new Random().nextBytes(body);
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout((int) SEND_MILLIS_MAX);
        producer.start();
        transactions.setNamesrvAddr(nameServer);
        transactions.setSendMsgTimeout((int) SEND_MILLIS_MAX);
        transactions.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        transactions.start();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // keeps the client's logging out of the answers
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Workload workload = new Workload(arguments[0], answers)) {
            answers.println(JSONObject.of("open", true));
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                answers.println(workload.answer(JSON.parseObject(line)));
            }
        }
        System.exit(0); // the client leaves non-daemon threads behind
    }

    private JSONObject answer(JSONObject request) {
        try {
            return measure(request);
        } catch (Exception failure) {
            return JSONObject.of("error", failure.toString());
        }
    }

    private JSONObject measure(JSONObject request) throws Exception {
        String row = request.getString("row");
        long nanos = (long) (request.getDoubleValue("seconds") * 1e9);
        switch (row) {
            case "fill":
                return fill(request.getLongValue("count"));
            case "one":
                return repeated(nanos, 1, () -> sent(producer.send(message(SENT))));
            case "many":
                return async(nanos, 0);
            case "delayed":
                return async(nanos, DELAY_MILLIS);
            case "bulk":
                return repeated(nanos, BATCH, () -> sent(producer.send(batch(SENT, BATCH))));
            case "transactions": // its decisions are one-way in any case
            case "transactions-unawaited":
                return repeated(nanos, 1, this::transaction);
            case "transactions-many":
            case "transactions-unawaited-many":
                return threads(nanos, this::transaction);
            case "key":
                return repeated(nanos, 1, this::lookUp);
            default:
                Consuming consuming = new Consuming(
                    nameServer, BACKLOG, BODY_SIZE, backlog, nanos, this::began);
                return consuming.measure(row, request.getString("group"));
        }
    }

    /** Something that is done again and again. */
    private interface Step {
        void run() throws Exception;
    }

    private JSONObject repeated(long nanos, int messages, Step step) throws Exception {
        began();
        long begin = System.nanoTime();
        long count = 0;
        while (System.nanoTime() - begin < nanos) {
            step.run();
            count += messages;
        }
        return result(count, System.nanoTime() - begin);
    }

    private JSONObject threads(long nanos, Step step) throws Exception {
        AtomicLong count = new AtomicLong();
        AtomicReference<Exception> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        began();
        long begin = System.nanoTime();
        for (int number = 0; number < IN_FLIGHT; number++) {
            threads.add(new Thread(() -> {
                try {
                    while (System.nanoTime() - begin < nanos && failure.get() == null) {
                        step.run();
                        count.incrementAndGet();
                    }
                } catch (Exception its) {
                    failure.set(its);
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        return result(count.get(), System.nanoTime() - begin);
    }

    private JSONObject async(long nanos, int delayMillis) throws Exception {
        Semaphore room = new Semaphore(IN_FLIGHT);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    failure.set(new IllegalStateException("not stored: " + result));
                }
                room.release();
            }

            @Override
            public void onException(Throwable its) {
                failure.set(its);
                room.release();
            }
        };
        began();
        long begin = System.nanoTime();
        long count = 0;
        while (System.nanoTime() - begin < nanos && failure.get() == null) {
            room.acquire();
            Message message = message(SENT);
            if (delayMillis > 0) {
                message.setDelayTimeMs(delayMillis);
            }
            producer.send(message, callback);
            count++;
        }
        room.acquire(IN_FLIGHT);
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return result(count, System.nanoTime() - begin);
    }

    private JSONObject fill(long count) throws Exception {
        keys.set(0);
        began();
        long begin = System.nanoTime();
        for (backlog = 0; backlog < count; backlog += BATCH) {
            sent(producer.send(batch(BACKLOG, BATCH)));
        }
        return result(backlog, System.nanoTime() - begin);
    }

    private void transaction() throws Exception {
        sent(transactions.sendMessageInTransaction(message(SENT), null));
    }

    private void lookUp() throws Exception {
        String key = "key-" + keys.incrementAndGet() % backlog;
        int found = producer.queryMessage(BACKLOG, key, 32, 0, LATEST).getMessageList().size();
        if (found != 1) {
            throw new IllegalStateException("found " + found + " messages by " + key);
        }
    }

    private Message message(String topic) {
        return new Message(topic, "AA", "key-" + keys.getAndIncrement(), body);
    }

    private List<Message> batch(String topic, int count) {
        List<Message> messages = new ArrayList<>(count);
        for (int number = 0; number < count; number++) {
            messages.add(message(topic));
        }
        return messages;
    }

    private static void sent(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("not stored: " + result);
        }
    }

    private void began() {
        answers.println(JSONObject.of("began", true));
    }

    static JSONObject result(long messages, long nanos) {
        return JSONObject.of("messages", messages, "seconds", nanos / 1e9);
    }

    @Override
    public void close() {
        transactions.shutdown();
        producer.shutdown();
    }
}
