package eruca.interop;

import org.apache.rocketmq.store.ha.DefaultHAService;

/**
 * The replication of a broker without replicas: it opens no port.
 *
 * <p>RocketMQ opens its replication port on every address, and has no setting for that.
 */
public final class NoReplicas extends DefaultHAService {
    @Override
    public void start() {
        // nothing listens, and nobody waits for replicas
    }
}
