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

const orders = {
  async produce({ topic, values, codec }) {
    if (!(codec in producers)) {
      producers[codec] = connect("producer").producer({ idempotent: true, retry: { retries: Number.MAX_SAFE_INTEGER } });
      await producers[codec].connect();
    }
    const messages = values.map((value) => ({ value, partition: 0 }));
    await producers[codec].send({ topic, messages, compression: CODECS[codec], acks: -1 });
  },

  async join({ member, group, topic, session_ms }) {
    // Its heartbeats go out between fetches: these must not wait for long.
    const times = { sessionTimeout: session_ms, heartbeatInterval: 200, maxWaitTimeInMs: 200 };
    const consumer = connect(member).consumer({ groupId: group, ...times });
    const one = { consumer, assigned: [], values: [] };
    members[member] = one;
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      one.assigned = payload.memberAssignment[topic] ?? [];
    });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    const eachMessage = async ({ message }) => void one.values.push(message.value.toString());
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
