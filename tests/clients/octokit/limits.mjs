// A stock Octokit with its throttling plugin, in front of an API that Tollgate limits.
//
// The upstream knows nothing of limits: whatever the client reads, Tollgate said it.

import { parseArgs } from "node:util";

import { Octokit } from "@octokit/core";
import { throttling } from "@octokit/plugin-throttling";

import { FakeApi, Tally, giveUpAfter, token, tollgate } from "./harness.mjs";

const ThrottledOctokit = Octokit.plugin(throttling);

const DOCUMENTATION = "https://docs.example.com/limits";
const WINDOW_SECONDS = 3;
const CORE = 3;
const QUOTA = 5000;
const BURST = 2;
const SLOT_RETRY_SECONDS = 2;

const POLICY = `\
version: 1
upstreams:
  api: { servers: ["http://127.0.0.1:UPSTREAM_PORT"] }
identity:
  jwt:
    - name: main
      issuer: {issuer}
      audience: [api]
      algorithms: [HS256]
      secret_file: {secret_file}
  callers:
    - { name: user, key: jwt.sub }
limits:
  core: { per: caller, rate: ${CORE}/${WINDOW_SECONDS}s }
  quota: { per: caller, rate: ${QUOTA}/hour }
  burst: { per: caller, rate: ${BURST}/${WINDOW_SECONDS}s }
  slots: { per: caller, concurrent: 1, retry_after: ${SLOT_RETRY_SECONDS}s }
routes:
  - { match: { path: "/core/**" }, auth: required, limits: [core] }
  - { match: { path: "/burst/**" }, auth: required, limits: [quota, burst] }
  - { match: { path: "/slots/**" }, auth: required, limits: [quota, slots] }
responses: { denied_status: DENIED_STATUS, headers: HEADERS, documentation_url: ${DOCUMENTATION} }
`;

/** What each way to run the proxy, and each way to ask it, must not change. */
const DENIED_STATUSES = [403, 429];
const HEADERS = ["github", "both"];
const ACCEPTS = { json: "application/vnd.github.v3+json", problem: "application/problem+json" };

/** Someone who calls through a client of their own, and what that client heard. */
class Caller {
  /** Every response, also the denials that the client keeps to itself. */
  responses = [];
  /** What the client's handlers were called with. */
  told = [];
  /** Whether to let the client wait and try again. */
  isPatient = false;
  /** What to do while the client waits. */
  onWait = () => {};

  constructor(session, limit, form) {
    const name = `${limit}-${form}`;
    this.session = session;
    this.name = name;
    this.form = form;
    this.octokit = new ThrottledOctokit({
      baseUrl: session.url,
      auth: token(session.secret, name),
      request: { fetch: (url, options) => this.#fetch(url, options) },
      throttle: {
        id: session.name + name,
        onRateLimit: (seconds) => this.#hear("primary", seconds),
        onSecondaryRateLimit: (seconds) => this.#hear("secondary", seconds),
      },
    });
  }

  async #fetch(url, options) {
    const response = await fetch(url, options);
    const { status, headers } = response;
    const body = await response.clone().text();
    const { pathname: path } = new URL(url);
    this.responses.push({ path, status, headers: Object.fromEntries(headers), body });
    return response;
  }

  #hear(kind, seconds) {
    this.told.push({ kind, seconds, at: Date.now() });
    if (this.isPatient) this.onWait();
    return this.isPatient;
  }

  get(path) {
    return this.octokit.request(`GET ${path}`, { headers: { accept: ACCEPTS[this.form] } });
  }

  /** The caller's own standing. */
  async standing() {
    const { data } = await this.octokit.request("GET /rate_limit");
    return data;
  }

  expect(what, wanted, seen) {
    this.session.tally.expect(this.#label(what), wanted, seen);
  }

  expectWithin(what, bounds, seen) {
    this.session.tally.expectWithin(this.#label(what), bounds, seen);
  }

  #label(what) {
    return `${this.session.name}: ${this.name}: ${what}`;
  }

  /** Uses up a limit of `count`, and gives when the first request was sent and answered. */
  async countDown(path, count, limit) {
    const sent = Date.now();
    let answered;
    for (let used = 1; used <= count; used += 1) {
      const { status, headers } = await this.get(path);
      answered ??= Date.now();
      this.expect(`status of request ${used}`, 200, status);
      this.expect(`counts after ${used}`, counts(limit, used), countsOf(headers));
      this.#expectFieldsOfProfile(headers);
    }
    this.expect("handlers called before the limit", [], this.told);
    return { sent, answered };
  }

  /** A client that does not wait is denied, and hears of the right `kind` of denial. */
  async denial(path, kind, limit) {
    const { deniedStatus: status, api } = this.session;
    const before = api.requests.get(path) ?? 0;
    const error = await this.get(path).then(
      () => null,
      (error) => error,
    );
    this.expect("status of the denial", status, error?.status);
    this.expect("requests that reached upstream", before, api.requests.get(path) ?? 0);
    this.expect("handlers called on a denial", [kind], this.told.map((told) => told.kind));
    const denial = this.responses.at(-1);
    this.expect("limit that denied", limit, denial.headers["x-tollgate-denied-by"]);
    this.expect("retry-after", true, Number(denial.headers["retry-after"]) >= 1);
    this.#expectBody(denial, kind, limit);
    this.#expectFieldsOfProfile(denial.headers);
    return { told: this.told.at(-1), denial };
  }

  /** A client that waits is denied once more, waits, and then has what it asked for. */
  async resume(path, kind) {
    const before = this.session.api.requests.get(path) ?? 0;
    this.responses = [];
    this.told = [];
    this.isPatient = true;
    const response = await this.get(path);
    this.isPatient = false;
    const statuses = this.responses
      .filter((response) => response.path === path)
      .map((response) => response.status);
    this.expect("statuses until it resumed", [this.session.deniedStatus, 200], statuses);
    this.expect("body after it resumed", { path }, response.data);
    this.expect("requests that reached upstream", before + 1, this.session.api.requests.get(path));
    this.expect("handlers called until it resumed", [kind], this.told.map((told) => told.kind));
    return response;
  }

  #expectBody({ headers, body }, kind, limit) {
    const json = JSON.parse(body);
    const isProblem = this.form === "problem";
    const mediaType = isProblem ? "application/problem+json" : "application/json";
    this.expect("media type of the denial", `${mediaType}; charset=utf-8`, headers["content-type"]);
    const message = isProblem ? json.detail : json.message;
    if (kind === "primary") {
      this.expect("message", `API rate limit exceeded for user ${this.name}.`, message);
    } else {
      const start = "You have exceeded a secondary rate limit";
      this.expect("start of the message", start, message.slice(0, start.length));
    }
    if (isProblem) {
      this.expect("violated-policies", [limit], json["violated-policies"]);
      return;
    }
    const fragment = kind === "primary" ? "" : "#about-secondary-rate-limits";
    this.expect("documentation_url", DOCUMENTATION + fragment, json.documentation_url);
  }

  /** The standard's fields are there if the policy wants them, and never break GitHub's. */
  #expectFieldsOfProfile(headers) {
    const isThere = this.session.headers === "both";
    this.expect("a ratelimit field", isThere, "ratelimit" in headers);
    this.expect("a ratelimit-policy field", isThere, "ratelimit-policy" in headers);
  }
}

/** The headers of GitHub's that count. */
function countsOf(headers) {
  return ["limit", "remaining", "used"].map((name) => headers[`x-ratelimit-${name}`]);
}

function counts(limit, used) {
  return [limit, limit - used, used].map(String);
}

/** Whole seconds, rounded up, within which a window may end that one request opened. */
function windowEnd({ sent, answered }) {
  return [sent, answered + 1].map((at) => Math.ceil(at / 1000 + WINDOW_SECONDS));
}

/** The first limit of a route: `onRateLimit`, with the time until the window ends. */
async function primary(session, form) {
  const caller = new Caller(session, "primary", form);
  const path = `/core/${form}`;
  const unused = await caller.standing();
  caller.expect("standing before", { limit: CORE, used: 0, remaining: CORE }, numbers(unused));

  const opened = await caller.countDown(path, CORE, CORE);
  const reset = Number(caller.responses.at(-1).headers["x-ratelimit-reset"]);
  caller.expectWithin("reset is one window after the first request", windowEnd(opened), reset);

  // Asked twice, with nothing left: it costs nothing.
  for (const time of ["once", "twice"]) {
    const used = await caller.standing();
    caller.expect(`standing ${time}`, { limit: CORE, used: CORE, remaining: 0 }, numbers(used));
    caller.expect(`reset in the standing ${time}`, reset, used.rate.reset);
    caller.expect(`core in the standing ${time}`, used.rate, used.resources.core);
  }
  const forwarded = session.api.requests.has("/rate_limit");
  caller.expect("a standing reached upstream", false, forwarded);

  const { told, denial } = await caller.denial(path, "primary", "core");
  caller.expect("counts of the denial", counts(CORE, CORE), countsOf(denial.headers));
  caller.expect("reset of the denial", String(reset), denial.headers["x-ratelimit-reset"]);
  // The client adds a second, and its clock was read a moment before this one's.
  const wait = Math.ceil(reset - told.at / 1000) + 1;
  caller.expectWithin("seconds that onRateLimit was told", [wait, wait + 1], told.seconds);

  const { headers } = await caller.resume(path, "primary");
  caller.expect("counts of the next window", counts(CORE, 1), countsOf(headers));
}

/** A second limit, with a window of its own: `onSecondaryRateLimit`, with the time until it ends. */
async function burst(session, form) {
  const caller = new Caller(session, "burst", form);
  const path = `/burst/${form}`;
  const opened = await caller.countDown(path, BURST, QUOTA);
  const asked = Date.now();
  const { told } = await caller.denial(path, "secondary", "burst");
  const wait = [opened.sent - told.at, opened.answered + 1 - asked];
  const seconds = wait.map((milliseconds) => Math.ceil(milliseconds / 1000 + WINDOW_SECONDS));
  caller.expectWithin("seconds that onSecondaryRateLimit was told", seconds, told.seconds);

  const { headers } = await caller.resume(path, "secondary");
  caller.expect("counts after it resumed", counts(QUOTA, BURST + 1), countsOf(headers));
}

/** Too many requests at once: `onSecondaryRateLimit`, with the time that the policy says. */
async function slots(session, form) {
  const caller = new Caller(session, "slots", form);
  const path = `/slots/${form}`;
  const held = `${path}/held`;
  const first = caller.get(held);
  await Promise.race([session.api.arrival(held), first]);
  const { told } = await caller.denial(path, "secondary", "slots");
  caller.expect("seconds that onSecondaryRateLimit was told", SLOT_RETRY_SECONDS, told.seconds);

  caller.onWait = () => session.api.release(held);
  const { headers } = await caller.resume(path, "secondary");
  caller.expect("status of the request that held the slot", 200, (await first).status);
  caller.expect("counts after it resumed", counts(QUOTA, 2), countsOf(headers));
}

function numbers({ rate: { limit, used, remaining } }) {
  return { limit, used, remaining };
}

/** One proxy, and all scenarios at once: each has callers of its own. */
async function run(binary, tally, deniedStatus, headers) {
  const name = `${deniedStatus} ${headers}`;
  await FakeApi.serve(async (api) => {
    const policy = POLICY.replace("UPSTREAM_PORT", api.port)
      .replace("DENIED_STATUS", deniedStatus)
      .replace("HEADERS", headers);
    await tollgate(binary, policy, tally, async (url, secret) => {
      const session = { name, api, url, secret, tally, deniedStatus, headers };
      const scenarios = [primary, burst, slots].flatMap((scenario) =>
        Object.keys(ACCEPTS).map((form) =>
          // A scenario that breaks off is a check that failed.
          scenario(session, form).catch((error) =>
            tally.fail(`${name}: ${scenario.name}-${form}`, error.stack),
          ),
        ),
      );
      await Promise.all(scenarios);
    });
  });
}

async function main() {
  const { values } = parseArgs({
    options: { tollgate: { type: "string", default: "target/release/tollgate" } },
  });
  giveUpAfter(120);

  const tally = new Tally();
  for (const status of DENIED_STATUSES) {
    for (const headers of HEADERS) {
      console.log(`denied_status ${status}, headers ${headers}`);
      await run(values.tollgate, tally, status, headers);
    }
  }
  return tally.conclude();
}

// The plugin keeps timers of its own, which would hold the process for minutes.
process.exit(await main());
