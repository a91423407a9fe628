// BullMQ: `node bullmq_jobs.js work` is its worker, `node bullmq_jobs.js enqueue` reads orders as enqueue.py does.
// What a job does, and what the orders and their answers are, is told in counting.py and enqueue.py.
"use strict";

const readline = require("node:readline");
const { performance } = require("node:perf_hooks");
const { Queue, Worker } = require("bullmq");
const IORedis = require("ioredis");

const URL = process.env.BENCH_URL;
const [MARK, RAN, EACH, SEEN] = ["mark", "bench:ran", "each-", "bench:seen"];
const TOGETHER = 100;
const [TAKES, SLOTS] = [1000 * Number(process.env.BENCH_TAKES || 0), Number(process.env.BENCH_SLOTS || TOGETHER)];
const connection = new IORedis(URL, { maxRetriesPerRequest: null });

function work() {
  let calls = 0;
  let starts = 0;
  const server = new IORedis(URL);
  const handle = async (job) => {
    const payload = job.data;
    if (payload === MARK) {
      await server.set(RAN, calls);
    } else if (payload.startsWith(EACH)) {
      await new Promise((done) => setTimeout(done, 1 + (Number(payload.slice(EACH.length)) % 9)));
      await server.sadd(SEEN, payload);
    } else {
      if (TAKES) {
        starts += 1; // the first ones take less, or all would end together
        await new Promise((done) => setTimeout(done, (TAKES * Math.min(SLOTS, starts)) / SLOTS));
      }
      calls += 1;
    }
  };
  new Worker("jobs", handle, { connection, concurrency: SLOTS, removeOnComplete: { count: 0 } });
}

async function enqueue(queue, payloads) {
  for (let at = 0; at < payloads.length; at += TOGETHER) {
    await queue.addBulk(payloads.slice(at, at + TOGETHER).map((data) => ({ name: "job", data })));
  }
}

async function takeOrders() {
  const queue = new Queue("jobs", { connection });
  await queue.waitUntilReady();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [number, payload] = line.split(" ");
    const payloads = Array.from({ length: Number(number) }, (_, at) => (payload === EACH ? `${EACH}${at}` : payload));
    const [cpu, started] = [process.cpuUsage(), performance.now()];
    await enqueue(queue, payloads);
    const spent = process.cpuUsage(cpu);
    const told = { wall: (performance.now() - started) / 1e3, cpu: (spent.user + spent.system) / 1e6 };
    console.log(JSON.stringify(told));
  }
}

process.argv[2] === "work" ? work() : takeOrders();
