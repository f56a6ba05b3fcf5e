// node-redis and ioredis ask Tollgate, by their defaults. Prints triples as JSON: what was asked,
// what came, what was expected. clients.py runs it.

import Redis from "ioredis";
import { createClient } from "redis";

const [port, password] = [Number(process.argv[2]), process.argv[3]];
const told = [];
const expect = (what, got, expected) => told.push([what, got, expected]);

/** Uses every kind of command. */
async function use(name, call, pipelined) {
  const key = `node-${name}`;
  expect(`${name}: ping`, await call("PING"), "PONG");
  expect(`${name}: a bucket`, await call("RL.REDUCE", key, "5", "60"), 5);
  expect(`${name}: what it holds`, await call("RL.GET", key, "5", "60"), 4);
  expect(`${name}: a throttle`, await call("CL.THROTTLE", key, "15", "30", "60"), [0, 16, 15, -1, 2]);
  const charged = await call("TG.CHARGE", "mail", key, "COST", "2");
  expect(`${name}: a charge`, charged.slice(0, 3), [1, 1, -1]);
  expect(`${name}: given back`, await call("TG.GIVEBACK", charged[4]), "OK");
  const standing = await call("TG.STANDING", "mail", key);
  expect(`${name}: standing`, standing.slice(0, 3), [3, 0, 3]);
  const error = await call("RL.REDUCE", key, "0", "60").catch((error) => error.message);
  expect(`${name}: an error`, error, "Value is not an integer or out of range");
  const numbers = await pipelined(key, 200);
  expect(`${name}: a pipeline`, numbers, Array.from({ length: 200 }, (_, at) => 200 - at));
}

const io = new Redis({ port, password });
await use(
  "ioredis",
  (...words) => io.call(...words),
  async (key, times) => {
    const pipeline = io.pipeline();
    for (let at = 0; at < times; at += 1) pipeline.call("RL.REDUCE", `${key}-p`, "200", "60");
    return (await pipeline.exec()).map(([, reply]) => reply);
  },
);
io.disconnect();

const node = await createClient({ socket: { port }, password }).connect();
await use(
  "node-redis",
  (...words) => node.sendCommand(words),
  (key, times) =>
    Promise.all(
      Array.from({ length: times }, () => node.sendCommand(["RL.REDUCE", `${key}-p`, "200", "60"])),
    ),
);
node.destroy();

console.log(JSON.stringify(told));
