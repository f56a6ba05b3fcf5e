// What the scripts for Node share: the proxy and the API behind it, tokens, checks and their count.
//
// Whatever is started is stopped on every way out; the proxy's log is shown when a check failed.

import { spawn } from "node:child_process";
import { createHmac, randomBytes } from "node:crypto";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect, isDeepStrictEqual } from "node:util";

const PATIENCE_MS = 30_000;
const ISSUER = "https://issuer.test";

/** Counts checks and prints each one that failed, with what was seen. */
export class Tally {
  passed = 0;
  failed = 0;

  /** A check passes when what was seen is what was wanted. */
  expect(what, wanted, seen) {
    if (isDeepStrictEqual(wanted, seen)) {
      this.passed += 1;
    } else {
      this.fail(what, `expected ${inspect(wanted)}, got ${inspect(seen)}`);
    }
  }

  /** A check passes when what was seen is at least `least` and at most `most`. */
  expectWithin(what, [least, most], seen) {
    if (least <= seen && seen <= most) {
      this.passed += 1;
    } else {
      this.fail(what, `expected ${least} to ${most}, got ${inspect(seen)}`);
    }
  }

  fail(what, problem) {
    this.failed += 1;
    console.log(`FAILED ${what}\n    ${problem}`);
  }

  /** Prints the line that `tests/run.sh` adds up, and gives the exit code. */
  conclude() {
    console.log(`${this.passed} passed, ${this.failed} failed`);
    return this.failed > 0 ? 1 : 0;
  }
}

/** Ends the run with an error when it takes longer; what was started is still stopped. */
export function giveUpAfter(seconds) {
  setTimeout(() => {
    console.error(`not done within ${seconds} seconds`);
    process.exit(1);
  }, seconds * 1000).unref();
  // A signal must unwind too, or the processes under test would outlive this one.
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
}

/** An API that knows nothing of limits, and counts the requests that came through. */
export class FakeApi {
  #server = createServer((request, response) => this.#answer(request, response));
  #arrivals = new Map();
  #held = new Map();
  /** Requests by path. */
  requests = new Map();

  /** Serves on a port of its own while `use` runs. */
  static async serve(use) {
    const api = new FakeApi();
    await new Promise((ready) => api.#server.listen(0, "127.0.0.1", ready));
    try {
      return await use(api);
    } finally {
      api.#server.close();
      api.#server.closeAllConnections();
    }
  }

  get port() {
    return this.#server.address().port;
  }

  /** Waits until a request for `path`, which ends in `/held`, is there. */
  async arrival(path) {
    if (!this.#held.has(path)) await new Promise((arrived) => this.#arrivals.set(path, arrived));
  }

  /** Answers the request that is held. */
  release(path) {
    this.#held.get(path)?.();
  }

  #answer(request, response) {
    const path = request.url;
    this.requests.set(path, (this.requests.get(path) ?? 0) + 1);
    const answer = () => {
      response.setHeader("content-type", "application/json; charset=utf-8");
      response.end(JSON.stringify({ path }));
    };
    if (!path.endsWith("/held")) return answer();
    this.#held.set(path, answer);
    this.#arrivals.get(path)?.();
  }
}

/**
 * Runs Tollgate with one policy, in a folder of its own, while `use` runs with its address and the
 * secret of its tokens. `{secret_file}` in the policy is replaced by the path of a secret.
 */
export async function tollgate(binary, policy, tally, use) {
  const failedBefore = tally.failed;
  const port = await freePort();
  const secret = randomBytes(32).toString("hex");
  const folder = mkdtempSync(join(tmpdir(), "tollgate-"));
  const logFile = join(folder, "log.txt");
  const log = openSync(logFile, "w");
  const settings = writeSettings(folder, port, policy, secret);
  const child = spawn(resolve(binary), ["run", "--config", settings], {
    stdio: ["ignore", log, log],
  });
  closeSync(log);
  const ended = new Promise((end) => child.once("exit", end).once("error", end));
  const clean = () => {
    child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  process.once("exit", clean);
  let isDone = false;
  try {
    await untilListening(port, child);
    await use(`http://127.0.0.1:${port}`, secret);
    if (hasEnded(child)) throw new Error("tollgate ended by itself");
    isDone = true;
  } finally {
    if (!isDone || tally.failed > failedBefore) showTail(logFile);
    child.kill("SIGTERM");
    await Promise.race([ended, sleep(PATIENCE_MS, null, { ref: false })]);
    process.off("exit", clean);
    clean();
  }
}

/** Writes all that Tollgate reads, and gives the path of its settings. */
function writeSettings(folder, port, policy, secret) {
  const secretFile = join(folder, "secret.txt");
  writeFileSync(secretFile, secret, { mode: 0o600 });
  mkdirSync(join(folder, "policies"));
  writeFileSync(
    join(folder, "policies", "main.yaml"),
    policy.replaceAll("{secret_file}", secretFile).replaceAll("{issuer}", ISSUER),
  );
  const settings = join(folder, "tollgate.yaml");
  writeFileSync(
    settings,
    [
      "version: 1",
      `listeners: [{ address: "127.0.0.1:${port}" }]`,
      "policies: policies",
      'access_log: { format: "off" }',
      "",
    ].join("\n"),
  );
  return settings;
}

// Those of the other scripts end where these begin, and those that the system gives to outgoing
// connections begin where these end.
const FIRST_PORT = 32_000;
const PORTS = 768;

/**
 * A loopback port that is free. It is not claimed, as `free_port` of harness.py does: Node 18 cuts the
 * name of an abstract socket at its first byte, which is zero, so that a second claim fails for ever.
 */
async function freePort() {
  for (let tried = 0; tried < PORTS; tried += 1) {
    const port = FIRST_PORT + ((process.pid * 7919 + tried) % PORTS);
    const probe = createServer();
    const isFree = await new Promise((tell) => {
      probe.once("error", () => tell(false)).listen(port, "127.0.0.1", () => tell(true));
    });
    if (!isFree) continue;
    await new Promise((closed) => probe.close(closed));
    return port;
  }
  throw new Error("no port is free");
}

/** Returns when a connection is accepted; fails when the process ends or takes too long. */
async function untilListening(port, child) {
  const deadline = Date.now() + PATIENCE_MS;
  while (Date.now() < deadline) {
    if (hasEnded(child)) throw new Error("tollgate ended before it listened");
    const isOpen = await new Promise((tell) => {
      const socket = connect(port, "127.0.0.1");
      socket.once("connect", () => tell(true)).once("error", () => tell(false));
      socket.once("connect", () => socket.destroy());
    });
    if (isOpen) return;
    await sleep(50);
  }
  throw new Error(`tollgate did not listen on port ${port}`);
}

/** A process that could not be started has no id. */
function hasEnded(child) {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
}

function showTail(logFile) {
  const lines = readFileSync(logFile, "utf8").trimEnd().split("\n").slice(-40);
  console.log(["--- the last lines of tollgate ---", ...lines].join("\n"));
}

/** A JSON Web Token signed with HS256 (RFC 7515, appendix A.1). */
export function token(secret, subject) {
  const now = Math.floor(Date.now() / 1000);
  const header = { alg: "HS256", typ: "JWT" };
  const claims = { iss: ISSUER, aud: "api", sub: subject, iat: now, exp: now + 3600 };
  const signed = [header, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".");
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}
