// KafkaJS obeys the orders of the client matrix: a line of JSON with an order comes in, one with the answer goes out.

import { createInterface } from "node:readline";
import kafkajs from "kafkajs";
import snappy from "kafkajs-snappy";

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;
CompressionCodecs[CompressionTypes.Snappy] = snappy;
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };

const connect = (clientId) => new Kafka({ clientId, brokers: [process.argv[2]], logLevel: logLevel.NOTHING });
const admin = connect("admin").admin();
const producers = {};
const members = {};
const transactional = {};

// Offsets of a transaction are committed without the generation, and asked for without requireStable: after a rebalance
// a worker would read on from before its own open transaction. Whoever wants exactly once ends there, and begins anew.
const checkSeat = (member) => {
  if (member?.joins > 1) throw new Error("the group was rebalanced");
};

const orders = {
  async produce({ topic, values, codec }) {
    if (!(codec in producers)) {
      producers[codec] = connect("producer").producer({ idempotent: true, retry: { retries: Number.MAX_SAFE_INTEGER } });
      await producers[codec].connect();
    }
    const messages = values.map((value) => ({ value, partition: 0 }));
    await producers[codec].send({ topic, messages, compression: CODECS[codec], acks: -1 });
  },

  async join({ member, group, topic, session_ms, isolation }) {
    // Its heartbeats go out between fetches: these must not wait for long.
    const times = { sessionTimeout: session_ms, heartbeatInterval: 200, maxWaitTimeInMs: 200 };
    const consumer = connect(member).consumer({ groupId: group, ...times, readUncommitted: isolation !== "read_committed" });
    const one = { consumer, group, topic, assigned: [], joins: 0, values: [], unprocessed: [] };
    members[member] = one;
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      one.assigned = payload.memberAssignment[topic] ?? [];
      one.joins += 1;
    });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    const eachMessage = async ({ partition, message }) => {
      one.values.push(message.value.toString());
      one.unprocessed.push({ partition, offset: message.offset, value: message.value.toString() });
    };
    consumer.run({ autoCommit: false, eachMessage }).catch((problem) => console.error(problem));
  },

  async poll({ members: names }) {
    await new Promise((awake) => setTimeout(awake, 50));
    const state = (name) => ({ assigned: members[name].assigned, values: members[name].values });
    return Object.fromEntries(names.map((name) => [name, state(name)]));
  },

  async commit({ member, topic, offset, metadata }) {
    await members[member].consumer.commitOffsets([{ topic, partition: 0, offset: String(offset), metadata }]);
  },

  async seek({ member, topic }) {
    members[member].consumer.seek({ topic, partition: 0, offset: "0" });
  },

  async leave({ member }) {
    await members[member].consumer.disconnect();
    delete members[member];
  },

  async committed({ group }) {
    const topics = await admin.fetchOffsets({ groupId: group });
    return topics.flatMap(({ partitions }) =>
      partitions.map(({ partition, offset, metadata }) => [partition, Number(offset), metadata]),
    );
  },

  async groups() {
    return (await admin.listGroups()).groups.map(({ groupId }) => groupId);
  },

  async describe({ group }) {
    const [found] = (await admin.describeGroups([group])).groups;
    return [found.state, found.members.map(({ clientId }) => clientId).sort()];
  },

  async alter_offsets({ group, topic, offset }) {
    await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: String(offset) }] });
  },

  async delete_group({ group }) {
    await admin.deleteGroups([group]);
  },

  async delete_topic({ topic }) {
    await admin.deleteTopics({ topics: [topic] });
  },

  async transactional({ producer, id, timeout_ms }) {
    const settings = { transactionalId: id, transactionTimeout: timeout_ms, idempotent: true, maxInFlightRequests: 1 };
    transactional[producer] = { sending: connect(producer).producer(settings) };
    await transactional[producer].sending.connect(); // asks for its producer id
  },

  async begin({ producer }) {
    transactional[producer].transaction = await transactional[producer].sending.transaction();
  },

  async send({ producer, topic, values, partitions }) {
    const messages = values.map((value, number) => ({ value, partition: number % partitions }));
    await transactional[producer].transaction.send({ topic, messages, acks: -1 });
  },

  async send_offset({ producer, member, topic, offset }) {
    const topics = [{ topic, partitions: [{ partition: 0, offset: String(offset) }] }];
    await transactional[producer].transaction.sendOffsets({ consumerGroupId: members[member].group, topics });
  },

  async commit_transaction({ producer }) {
    checkSeat(members[producer]);
    await transactional[producer].transaction.commit();
  },

  async abort_transaction({ producer }) {
    await transactional[producer].transaction.abort();
  },

  async worker({ member, id, ...about }) {
    await orders.transactional({ producer: member, id, timeout_ms: 60_000 });
    await orders.join({ member, ...about, isolation: "read_committed" });
  },

  async process({ member, output }) {
    await new Promise((awake) => setTimeout(awake, 50));
    const one = members[member];
    checkSeat(one);
    const some = one.unprocessed.splice(0, 10);
    if (some.length) {
      await orders.begin({ producer: member });
      const messages = some.map(({ partition, value }) => ({ partition, value: `done ${value}` }));
      await transactional[member].transaction.send({ topic: output, messages, acks: -1 });
      const ends = new Map(some.map(({ partition, offset }) => [partition, String(BigInt(offset) + 1n)]));
      const partitions = [...ends].map(([partition, offset]) => ({ partition, offset }));
      const topics = [{ topic: one.topic, partitions }];
      await transactional[member].transaction.sendOffsets({ consumerGroupId: one.group, topics });
    }
    return some.length;
  },
};

await admin.connect();
for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...about } = JSON.parse(line);
  let answer;
  try {
    answer = { result: await orders[name](about) };
  } catch (problem) {
    answer = { error: String(problem) };
  }
  console.log(JSON.stringify(answer));
}
process.exit(0);
