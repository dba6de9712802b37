package eruca.interop;

import com.alibaba.fastjson2.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads topics, by pulling each queue or as a consumer group. */
final class Reading {
    private static final int BATCH = 32;
    private static final long SEND_BACK_MILLIS_MAX = 10_000;

    private final DefaultMQPullConsumer consumer;

    Reading(DefaultMQPullConsumer consumer) {
        this.consumer = consumer;
    }

    /** Every message of every queue, from the first offset to the last. */
    List<JSONObject> topic(String topic) throws Exception {
        List<JSONObject> messages = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long offset = consumer.minOffset(queue);
            long end = consumer.maxOffset(queue);
            while (offset < end) {
                PullResult result = consumer.pull(queue, "*", offset, BATCH);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    result.getMsgFoundList().forEach(message -> messages.add(describe(message)));
                }
                if (result.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(queue + " ends at " + offset + ", not " + end);
                }
                offset = result.getNextBeginOffset();
            }
        }
        return messages;
    }

    /** Consumes with a new group until the expected number has arrived or time is up. */
    static List<JSONObject> subscribe(String nameServer, JSONObject request) throws Exception {
        int expected = request.getIntValue("count");
        List<JSONObject> messages = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch missing = new CountDownLatch(expected);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), request.getString("expression"));
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt message : batch) {
                messages.add(describe(message));
                missing.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        missing.await(request.getLongValue("seconds"), TimeUnit.SECONDS);
        consumer.shutdown();
        return new ArrayList<>(messages);
    }

    /** Lets one message fail in a group, once; all others are consumed. */
    static List<JSONObject> fail(String nameServer, JSONObject request) throws Exception {
        String body = request.getString("body");
        CountDownLatch failed = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(SEND_BACK_MILLIS_MAX);
        consumer.setMaxReconsumeTimes(request.getIntValue("retries_max"));
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt message : batch) {
                if (Base64.getEncoder().encodeToString(message.getBody()).equals(body)) {
                    failed.countDown();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean hasFailed = failed.await(request.getLongValue("seconds"), TimeUnit.SECONDS);
        consumer.shutdown();
        if (!hasFailed) {
            throw new IllegalStateException("the group has not received the message");
        }
        return List.of();
    }

    static JSONObject describe(MessageExt message) {
        JSONObject row = new JSONObject();
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("log_offset", message.getCommitLogOffset());
        row.put("size", message.getStoreSize());
        row.put("message_id", message.getMsgId());
        row.put("offset_message_id", message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : null);
        row.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        row.put("properties", message.getProperties());
        row.put("flag", message.getFlag());
        row.put("sys_flag", message.getSysFlag());
        row.put("reconsume_times", message.getReconsumeTimes());
        row.put("born_timestamp", message.getBornTimestamp());
        row.put("born_host", host(message.getBornHost()));
        row.put("store_timestamp", message.getStoreTimestamp());
        row.put("store_host", host(message.getStoreHost()));
        return row;
    }

    private static String host(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        return internet.getAddress().getHostAddress() + ":" + internet.getPort();
    }
}
