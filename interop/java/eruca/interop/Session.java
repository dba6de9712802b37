package eruca.interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.OffsetNotFoundException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The clients that one run shares, and the dispatch of requests to them. */
final class Session implements AutoCloseable {
    private static final long ROUTE_NANOS_MAX = 20_000_000_000L;
    private static final long BROKER_MILLIS_MAX = 10_000;
    private static final long ROUTE_POLL_MILLIS = 50;

    private final String nameServer;
    private final DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-reader");
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt();

    Session(String nameServer) throws Exception {
        this.nameServer = nameServer;
        producer.setNamesrvAddr(nameServer);
        consumer.setNamesrvAddr(nameServer);
        admin.setNamesrvAddr(nameServer);
        producer.start();
        consumer.start();
        admin.start();
    }

    List<JSONObject> handle(JSONObject request) throws Exception {
        String operation = request.getString("do");
        switch (operation) {
            case "create_topic":
                return createTopic(request);
            case "send":
                return new Sending(producer).send(request);
            case "send_batch":
                return new Sending(producer).sendBatch(request);
            case "send_later":
                return new Sending(producer).sendLater(request);
            case "recall":
                producer.recallMessage(request.getString("topic"), request.getString("handle"));
                return List.of();
            case "fail":
                return Reading.fail(nameServer, request);
            case "transaction":
                return Sending.transaction(nameServer, request);
            case "queues":
                return queues(request.getString("topic"));
            case "read_topic":
                awaitRoute(request.getString("topic"));
                return new Reading(consumer).topic(request.getString("topic"));
            case "subscribe":
                return Reading.subscribe(nameServer, request);
            case "find":
                return new Finding(admin).find(request);
            case "group_offsets":
                return groupOffsets(request);
            case "offsets_by_time":
                return offsetsByTime(request);
            default:
                throw new IllegalArgumentException("unknown request: " + operation);
        }
    }

    private List<JSONObject> createTopic(JSONObject request) throws Exception {
        int queues = request.getIntValue("queues");
        TopicConfig config = new TopicConfig(request.getString("topic"), queues, queues);
        admin.createAndUpdateTopicConfig(request.getString("broker"), config);
        awaitRoute(config.getTopicName());
        return List.of();
    }

    /** Polls until a new topic has a route: the broker registers it later, without an event. */
    private void awaitRoute(String topic) throws Exception {
        long deadline = System.nanoTime() + ROUTE_NANOS_MAX;
        while (true) {
            try {
                admin.examineTopicRouteInfo(topic);
                return;
            } catch (MQClientException unknown) {
                if (System.nanoTime() > deadline) {
                    throw unknown;
                }
                Thread.sleep(ROUTE_POLL_MILLIS);
            }
        }
    }

    private List<JSONObject> queues(String topic) throws Exception {
        List<JSONObject> rows = new ArrayList<>();
        Map<MessageQueue, TopicOffset> offsets = admin.examineTopicStats(topic).getOffsetTable();
        for (Map.Entry<MessageQueue, TopicOffset> entry : offsets.entrySet()) {
            rows.add(JSONObject.of(
                "queue_id", entry.getKey().getQueueId(),
                "min_offset", entry.getValue().getMinOffset(),
                "max_offset", entry.getValue().getMaxOffset()));
        }
        return rows;
    }

    /** Returns the offsets that the broker has stored for the group, without joining it. */
    private List<JSONObject> groupOffsets(JSONObject request) throws Exception {
        MQClientAPIImpl broker =
            producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        List<JSONObject> rows = new ArrayList<>();
        for (MessageQueue queue
            : consumer.fetchSubscribeMessageQueues(request.getString("topic"))) {
            QueryConsumerOffsetRequestHeader query = new QueryConsumerOffsetRequestHeader();
            query.setConsumerGroup(request.getString("group"));
            query.setTopic(queue.getTopic());
            query.setQueueId(queue.getQueueId());
            try {
                long offset = broker.queryConsumerOffset(
                    request.getString("broker"), query, BROKER_MILLIS_MAX);
                rows.add(JSONObject.of("queue_id", queue.getQueueId(), "offset", offset));
            } catch (OffsetNotFoundException unknown) {
                continue;
            }
        }
        return rows;
    }

    /** Returns the first offset stored at or after each of some times. */
    private List<JSONObject> offsetsByTime(JSONObject request) throws Exception {
        MessageQueue queue = null;
        for (MessageQueue candidate
            : consumer.fetchSubscribeMessageQueues(request.getString("topic"))) {
            if (candidate.getQueueId() == request.getIntValue("queue_id")) {
                queue = candidate;
            }
        }
        List<JSONObject> rows = new ArrayList<>();
        for (Object timestamp : request.getJSONArray("timestamps")) {
            long offset = admin.searchOffset(queue, ((Number) timestamp).longValue());
            rows.add(JSONObject.of("timestamp", timestamp, "offset", offset));
        }
        return rows;
    }

    @Override
    public void close() {
        admin.shutdown();
        consumer.shutdown();
        producer.shutdown();
    }
}
