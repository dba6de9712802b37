package eruca.interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Reads a backlog with a new group, and measures from the first message to the last.
 *
 * <p>It ends early when the time is up. Joining the group is not measured.
 */
final class Consuming {
    private static final int BATCH = 32;
    private static final long FIRST_SECONDS_MAX = 60;
    private static final long POLL_MILLIS = 1_000;

    private final String nameServer;
    private final String topic;
    private final int bodySize;
    private final long count;
    private final long nanos;
    private final Runnable began;
    private final CountDownLatch ended = new CountDownLatch(1);
    private long number;
    private long beginNanos;
    private long endNanos;

    Consuming(
        String nameServer, String topic, int bodySize, long count, long nanos, Runnable began) {
        this.nameServer = nameServer;
        this.topic = topic;
        this.bodySize = bodySize;
        this.count = count;
        this.nanos = nanos;
        this.began = began;
    }

    JSONObject measure(String row, String group) throws Exception {
        switch (row) {
            case "handler":
                push(group, 1);
                break;
            case "handlers32":
                push(group, BATCH);
                break;
            case "pulls":
                pull(group);
                break;
            default:
                throw new IllegalArgumentException("unknown row: " + row);
        }
        synchronized (this) {
            return Workload.result(number, endNanos - beginNanos);
        }
    }

    private void push(String group, int batch) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(this::add);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!ended.await(FIRST_SECONDS_MAX + nanos / 1_000_000_000L, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the messages have not arrived");
            }
        } finally {
            consumer.shutdown();
        }
    }

    private void pull(String group) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(BATCH);
        consumer.subscribe(topic, "*");
        consumer.start();
        try {
            long deadline = System.nanoTime() + nanos + FIRST_SECONDS_MAX * 1_000_000_000L;
            while (ended.getCount() > 0) {
                consumer.poll(POLL_MILLIS).forEach(this::add);
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the messages have not arrived");
                }
            }
        } finally {
            consumer.shutdown();
        }
    }

    private synchronized void add(MessageExt message) {
        if (message.getBody().length != bodySize) {
            throw new IllegalStateException("a body of " + message.getBody().length + " bytes");
        }
        if (ended.getCount() == 0) {
            return;
        }
        long now = System.nanoTime();
        if (number == 0) {
            beginNanos = now;
            began.run();
        }
        number++;
        if (number >= count || now - beginNanos > nanos) {
            endNanos = now;
            ended.countDown();
        }
    }
}
