"""The Chinese texts of reports, by their English templates.

A translation has the fields of its template. A test compares both, and fails while one is missing.
"""

# ruff: noqa: RUF001 - Chinese punctuation
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CHINESE: Final[Mapping[str, str]] = {
    # The page
    "Skip to the report": "跳到报告",
    "Theme": "主题色",
    "as the system": "跟随系统",
    "light": "浅色",
    "dark": "深色",
    "The messages behind it": "依据的消息",
    "There is nothing to draw.": "没有可绘制的数据。",
    "The tables below have the same numbers.": "下方表格给出相同的数字。",
    "The picture needs JavaScript. The tables below have the same numbers.": (
        "图表需要 JavaScript。下方表格给出相同的数字。"
    ),
    "none": "无",
    "The command that made it": "生成报告的命令",
    "Copy": "复制",
    "copied": "已复制",
    "selected; copy it by the keyboard": "已选中，请用键盘复制",
    "The input may be incomplete: see below.": "输入可能不完整：见下文。",
    "one row": "共 1 行",
    "{count:,} rows": "共 {count:,} 行",
    "the first {shown:,} of {count:,} rows; the Parquet file of --out DIRECTORY has all": (
        "共 {count:,} 行，此处为前 {shown:,} 行；--out 目录中的 Parquet 文件有全部行"
    ),
    "messages read": "读取的消息",
    "queues": "队列",
    "topics": "主题",
    "stored from": "最早存储时间",
    "stored until": "最晚存储时间",
    "read from": "来源",
    "Made at {at} by eruca-spark {version}.": "由 eruca-spark {version} 生成于 {at}。",
    "good": "正常",
    "note": "说明",
    "look here": "请注意",
    "fault": "故障",
    "yes": "是",
    "no": "否",
    # The messages behind a report
    "A broker was away, so its messages are missing: {detail}": (
        "有 Broker 无法访问，因此缺少它的消息：{detail}"
    ),
    "Retention deleted one message before an export to the lake.": (
        "有 1 条消息在导出到数据湖之前已被保留策略删除。"
    ),
    "Retention deleted {count:,} messages before an export to the lake.": (
        "有 {count:,} 条消息在导出到数据湖之前已被保留策略删除。"
    ),
    "Losses were tolerated (failOnDataLoss=false); the command named them on stderr.": (
        "允许丢失数据（failOnDataLoss=false）；丢失之处已由命令输出到 stderr。"
    ),
    "Nothing is missing: every queue was read without a gap.": "没有缺失：每个队列都完整读取。",
    "Topic {topic} has no messages here.": "主题 {topic} 在此没有消息。",
    "One message is missing within a queue: {queue}.": "队列 {queue} 中间缺少 1 条消息。",
    "{count:,} messages are missing within queues, most of them in {queue}.": (
        "队列中间共缺少 {count:,} 条消息，其中 {queue} 缺少最多。"
    ),
    "Broker {broker} became silent: its last message is from {at}, {by} before the newest of the"
    " others.": (
        "Broker {broker} 已无新消息：最后一条消息在 {at}，比其他 Broker 的最新消息早 {by}。"
    ),
    "One message is damaged.": "有 1 条消息已损坏。",
    "{count:,} messages are damaged.": "有 {count:,} 条消息已损坏。",
    "There are no messages.": "没有消息。",
    # The audit
    "Audit": "审计",
    "Queues": "队列",
    "Gaps": "缺口",
    "Messages by queue; red or a sign marks faults": "各队列的消息数；⚠ 表示有故障",
    "messages": "消息",
    "Queues with faults: {unsound:,} of {queues:,}; the worst is {queue}.": (
        "{queues:,} 个队列中有 {unsound:,} 个有故障，最严重的是 {queue}。"
    ),
    "Every queue is sound: {messages:,} messages in {queues:,} queues, none missing, none twice,"
    " none damaged.": (
        "所有队列完好：{queues:,} 个队列共 {messages:,} 条消息，无缺失、无重复、无损坏。"
    ),
    "One message is missing.": "缺少 1 条消息。",
    "{count:,} messages are missing.": "缺少 {count:,} 条消息。",
    "One offset occurs twice.": "有 1 个位点重复。",
    "{count:,} offsets occur twice.": "有 {count:,} 个位点重复。",
    "One message is older than the message before it.": "有 1 条消息的存储时间早于它的前一条。",
    "{count:,} messages are older than the message before them.": (
        "有 {count:,} 条消息的存储时间早于各自的前一条。"
    ),
    "One queue does not begin at 0: retention, or the range that was read.": (
        "有 1 个队列不从 0 开始：已被保留策略删除，或不在读取范围内。"
    ),
    "{count:,} queues do not begin at 0: retention, or the range that was read.": (
        "有 {count:,} 个队列不从 0 开始：已被保留策略删除，或不在读取范围内。"
    ),
    # Hot keys
    "Hot keys and queues": "热点 Key 与队列",
    "Hottest keys": "最热的 Key",
    "Hottest sharding keys": "最热的分片 Key",
    "Queues, the fullest of a topic first": "队列，每个主题中消息最多的在前",
    "Queues beside the mean of their topic": "队列与其主题平均值之比",
    "times the mean": "平均值的倍数",
    "No message has a key.": "所有消息都没有 Key。",
    "One key is hot: {key} has {share} of the keys of topic {topic} ({messages:,} messages).": (
        "有 1 个热点 Key：{key} 占主题 {topic} 的 Key 的 {share}（{messages:,} 条消息）。"
    ),
    "{count:,} keys are hot. The hottest is {key} with {share} of the keys of topic {topic}"
    " ({messages:,} messages).": (
        "有 {count:,} 个热点 Key。最热的是 {key}，占主题 {topic} 的 Key 的 {share}"
        "（{messages:,} 条消息）。"
    ),
    "Nothing is hot: the busiest key, {key} of topic {topic}, has {share}.": (
        "没有热点：最多的 Key 是主题 {topic} 的 {key}，占 {share}。"
    ),
    "No key stands out, but the topic has few: the busiest, {key} of topic {topic}, has {share}.": (
        "没有突出的 Key，但该主题的 Key 很少：最多的是主题 {topic} 的 {key}，占 {share}。"
    ),
    "One sharding key is hot: {key} has {share} of topic {topic} ({messages:,} messages), all in"
    " one queue.": (
        "有 1 个热点分片 Key：{key} 占主题 {topic} 的 {share}（{messages:,} 条消息），"
        "全在一个队列。"
    ),
    "{count:,} sharding keys are hot. The hottest is {key} with {share} of topic {topic}"
    " ({messages:,} messages), all in one queue.": (
        "有 {count:,} 个热点分片 Key。最热的是 {key}，占主题 {topic} 的 {share}"
        "（{messages:,} 条消息），全在一个队列。"
    ),
    "No sharding key is hot: the busiest, {key} of topic {topic}, has {share}.": (
        "没有热点分片 Key：最多的是主题 {topic} 的 {key}，占 {share}。"
    ),
    "No sharding key stands out, but the topic has few: the busiest, {key} of topic {topic}, has"
    " {share}.": (
        "没有突出的分片 Key，但该主题的分片 Key 很少：最多的是主题 {topic} 的 {key}，占 {share}。"
    ),
    "Each topic has messages in one queue only.": "每个主题只有一个队列有消息。",
    "Queues are skewed: {queue} has {times:.1f} times the mean of its topic ({messages:,}"
    " messages).": ("队列倾斜：{queue} 是其主题平均值的 {times:.1f} 倍（{messages:,} 条消息）。"),
    "Queues are even: the fullest, {queue}, has {times:.1f} times the mean of its topic.": (
        "队列均衡：消息最多的 {queue} 是其主题平均值的 {times:.1f} 倍。"
    ),
    # Latency
    "Delivery latency": "投递延迟",
    "From made to stored, by topic": "从创建到存储，按主题",
    "From made to stored, by topic and minute": "从创建到存储，按主题和分钟",
    "From stored until a group was past it": "从存储到消费者组处理完",
    "From made to stored, p99 by minute": "从创建到存储，每分钟的 p99",
    "From made to stored, p99 by minute, the {count} slowest of {topics} topics": (
        "从创建到存储，每分钟的 p99，{topics} 个主题中最慢的 {count} 个"
    ),
    "From stored until a group was past it, p99": "从存储到消费者组处理完，p99",
    "There are no messages with a time of creation.": "没有带创建时间的消息。",
    "Storing is slow: 99 % of the messages of topic {topic} were stored within {p99}, the slowest"
    " within {worst}.": (
        "存储缓慢：主题 {topic} 的 99 % 的消息在 {p99} 内存储，最慢的一条用了 {worst}。"
    ),
    "Storing is fast: 99 % of the messages of the slowest topic, {topic}, were stored within {p99},"
    " the slowest message within {worst}.": (
        "存储很快：最慢的主题 {topic} 的 99 % 的消息在 {p99} 内存储，最慢的一条用了 {worst}。"
    ),
    "Clocks differ: half of the messages of topic {topic} were stored {by} or more before they were"
    " created. Synchronise producers and brokers.": (
        "时钟不一致：主题 {topic} 有一半的消息的存储时间比创建时间早 {by} 以上。"
        "请同步生产者和 Broker 的时钟。"
    ),
    "Topic {topic} had a peak: in the minute of {minute} its p99 was {p99}, usually {usual}.": (
        "主题 {topic} 出现峰值：{minute} 这一分钟的 p99 为 {p99}，平时为 {usual}。"
    ),
    "Consumer groups were not examined; --groups includes them.": (
        "未检查消费者组；加上 --groups 可包含它们。"
    ),
    "No consumer group has committed or acknowledged a message.": (
        "没有消费者组提交或确认过消息。"
    ),
    "Group {group} is behind: {backlog:,} messages of topic {topic} wait, the oldest since"
    " {since}.": (
        "消费者组 {group} 有积压：主题 {topic} 有 {backlog:,} 条消息等待，最早的自 {since} 起。"
    ),
    "No group is behind: each is past every message.": "没有积压：每个消费者组都已处理完所有消息。",
    "The slowest group, {group}, was past 99 % of the messages of topic {topic} within {p99}.": (
        "最慢的消费者组 {group} 在 {p99} 内处理完主题 {topic} 的 99 % 的消息。"
    ),
    # Dead letters
    "Dead letters": "死信",
    "Dead letters by group, origin and reason": "死信，按消费者组、来源和原因",
    "After how many attempts": "尝试次数",
    "By day": "按天",
    "By group, origin and reason": "按消费者组、来源和原因",
    "dead letters": "死信",
    "There are no dead letters.": "没有死信。",
    "There is one dead letter, of group {group}, from {at}.": (
        "有 1 条死信，属于消费者组 {group}，时间为 {at}。"
    ),
    "There are {count:,} dead letters; the newest, of group {group}, is from {at}.": (
        "有 {count:,} 条死信；最新的一条属于消费者组 {group}，时间为 {at}。"
    ),
    "One origin has {share} of them: group {group}, topic {topic}, reason {reason}.": (
        "其中 {share} 来自同一处：消费者组 {group}，主题 {topic}，原因 {reason}。"
    ),
    "No origin has most of them: the largest share is {share} (group {group}, topic {topic}, reason"
    " {reason}).": (
        "没有占多数的来源：最大的一份占 {share}（消费者组 {group}，主题 {topic}，原因 {reason}）。"
    ),
    "They become more: group {group} had {last:,} on {day}, usually {usual:,.0f} a day.": (
        "死信在增多：消费者组 {group} 在 {day} 有 {last:,} 条，平时每天 {usual:,.0f} 条。"
    ),
    "One has no reason, as those that RocketMQ wrote.": (
        "其中 1 条没有原因，与 RocketMQ 写入的死信一样。"
    ),
    "{count:,} have no reason, as those that RocketMQ wrote.": (
        "其中 {count:,} 条没有原因，与 RocketMQ 写入的死信一样。"
    ),
    # Transactions
    "Transactions": "事务",
    "Transactions by producer group and topic": "事务，按生产者组和主题",
    "By number of checks": "按回查次数",
    "Open transactions, oldest first": "未决事务，最早的在前",
    "By producer group and topic": "按生产者组和主题",
    "transactions": "事务",
    "committed": "已提交",
    "rolled back": "已回滚",
    "parked": "已搁置",
    "pending": "待决",
    "There are no transactions.": "没有事务。",
    "One transaction is parked: its checks have ended without an answer.": (
        "有 1 个事务已搁置：回查已结束，仍无结果。"
    ),
    "{count:,} transactions are parked: their checks have ended without an answer.": (
        "有 {count:,} 个事务已搁置：回查已结束，仍无结果。"
    ),
    "One transaction is open, for {age}.": "有 1 个事务待决，已持续 {age}。",
    "{count:,} transactions are open, the oldest for {age}.": (
        "有 {count:,} 个事务待决，最早的已持续 {age}。"
    ),
    "The only transaction is decided.": "唯一的事务已决定。",
    "All {count:,} transactions are decided.": "全部 {count:,} 个事务均已决定。",
    "{share} of the decided ones were rolled back ({rolled_back:,} of {decided:,}).": (
        "已决定的事务中 {share} 已回滚（{decided:,} 个中的 {rolled_back:,} 个）。"
    ),
    "A check decided {share} of them ({checked:,}): the producer's own decision was late or"
    " lost.": ("其中 {share}（{checked:,} 个）由回查决定：生产者自己的决定迟到或丢失。"),
    "The slowest producer group, {group}, decided 99 % of its transactions within {p99}.": (
        "最慢的生产者组 {group} 在 {p99} 内决定了 99 % 的事务。"
    ),
    # Columns
    "topic": "主题",
    "broker name": "Broker",
    "queue id": "队列",
    "bytes": "字节",
    "first offset": "最小位点",
    "last offset": "最大位点",
    "from offset": "起始位点",
    "to offset": "结束位点",
    "missing": "缺少",
    "duplicates": "重复",
    "times back": "时间倒退",
    "damaged": "已损坏",
    "key": "Key",
    "share": "占比",
    "consumer group": "消费者组",
    "origin topic": "来源主题",
    "reason": "原因",
    "attempts": "尝试次数",
    "attempts max": "最多尝试次数",
    "first at": "最早时间",
    "last at": "最晚时间",
    "last error": "最近的错误",
    "last message id": "最近的消息 ID",
    "day": "日期",
    "minute": "分钟",
    "p50 ms": "p50（毫秒）",
    "p95 ms": "p95（毫秒）",
    "p99 ms": "p99（毫秒）",
    "worst ms": "最大（毫秒）",
    "backlog": "积压",
    "oldest stored at": "最早存储时间",
    "producer group": "生产者组",
    "decided by check": "由回查决定",
    "checks": "回查次数",
    "state": "状态",
    "transaction id": "事务 ID",
    "begun at": "开始时间",
    "age seconds": "已持续（秒）",
}
