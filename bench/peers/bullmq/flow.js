// The peer of P3: a BullMQ flow, one parent and its children, and the workers that carry it out.
//
//   node flow.js work REDIS_PORT UPSTREAM SLOTS   the workers; prints "worker ready"
//   node flow.js run REDIS_PORT PREFIX NUMBER     adds a flow and waits for its parent; prints {begun_ms, ended_ms}
//   node flow.js read REDIS_PORT                  prints what the parent has of each child, one JSON line each

import { FlowProducer, Job, Queue, QueueEvents, Worker } from "bullmq";
import { Pool } from "undici";

const CHILDREN = "documents";
const PARENTS = "groups";
const PARENT_ID = "the-group";
const DOCUMENT_BYTES = 1024;

/** The document of a job, as `bench.work.document_of` makes it. */
function documentOf(id) {
  return `${id}|`.padEnd(32, ".").repeat(DOCUMENT_BYTES / 32);
}

function childrenOf(prefix, number) {
  return Array.from({ length: number }, (_, n) => {
    const id = `${prefix}-${String(n).padStart(6, "0")}`;
    return { name: "ocr", queueName: CHILDREN, data: { id, document: documentOf(id) } };
  });
}

async function work(connection, upstream, slots) {
  const pool = new Pool(upstream, { connections: slots });
  const call = async (job) => {
    const { statusCode, body } = await pool.request({
      method: "POST",
      path: "/ocr",
      headers: { "content-type": "application/octet-stream", "x-request-id": job.data.id },
      body: job.data.document,
    });
    if (statusCode !== 200) throw new Error(`the upstream answered ${statusCode}`);
    return await body.json();
  };
  const workers = [
    new Worker(CHILDREN, call, { connection, concurrency: slots }),
    new Worker(PARENTS, async () => ({}), { connection }),
  ];
  await Promise.all(workers.map((worker) => worker.waitUntilReady()));
  console.log("worker ready");
}

async function run(connection, prefix, number) {
  const producer = new FlowProducer({ connection });
  const events = new QueueEvents(PARENTS, { connection });
  await events.waitUntilReady();
  const children = childrenOf(prefix, number);
  const begun_ms = Date.now();
  const { job } = await producer.add({
    name: "group",
    queueName: PARENTS,
    opts: { jobId: PARENT_ID },
    data: {},
    children,
  });
  await job.waitUntilFinished(events);
  console.log(JSON.stringify({ begun_ms, ended_ms: Date.now() }));
  await Promise.all([producer.close(), events.close()]);
}

async function read(connection) {
  const queue = new Queue(PARENTS, { connection });
  const parent = await Job.fromId(queue, PARENT_ID);
  for (const answer of Object.values(await parent.getChildrenValues())) console.log(JSON.stringify(answer));
  await queue.close();
}

const [command, port, ...rest] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
if (command === "work") await work(connection, rest[0], Number(rest[1]));
else if (command === "run") await run(connection, rest[0], Number(rest[1]));
else if (command === "read") await read(connection);
else throw new Error(`unknown command ${command}`);
