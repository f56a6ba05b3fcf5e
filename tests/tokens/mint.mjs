// Mints tokens with npm's jose. Reads `{ algorithms, tokens }` from standard input and writes
// `{ keys, tokens }` to standard output: see `Order` and `Keys` in minting.py.

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { SignJWT, calculateJwkThumbprint, exportJWK, exportSPKI, generateKeyPair } from "jose";

/** A key that signs, and the other half as jose exports it. */
async function generate(algorithm) {
  if (algorithm.startsWith("HS")) {
    // Text, as files and variables hold it.
    const secret = randomBytes(64).toString("hex");
    const key = new TextEncoder().encode(secret);
    return { key, exported: { jwk: await described(await exportJWK(key), algorithm), secret } };
  }
  const { publicKey, privateKey } = await generateKeyPair(algorithm, { extractable: true });
  const jwk = await described(await exportJWK(publicKey), algorithm);
  return { key: privateKey, exported: { jwk, pem: await exportSPKI(publicKey) } };
}

/** A JWK as jose's documentation tells issuers to publish it. */
async function described(jwk, algorithm) {
  return { ...jwk, kid: await calculateJwkThumbprint(jwk), use: "sig", alg: algorithm };
}

async function generateAll(algorithms) {
  const made = algorithms.map(async (algorithm) => [algorithm, await generate(algorithm)]);
  return Object.fromEntries(await Promise.all(made));
}

const { algorithms, tokens } = JSON.parse(readFileSync(0, "utf8"));
const keys = await generateAll(algorithms);
const others = await generateAll(algorithms);

const minted = tokens.map(({ algorithm, claims, by_another_key: byAnotherKey, typ }) => {
  // A stranger names the key that he would like to have.
  const { kid } = keys[algorithm].exported.jwk;
  const { key } = (byAnotherKey ? others : keys)[algorithm];
  return new SignJWT(claims).setProtectedHeader({ alg: algorithm, typ, kid }).sign(key);
});

const exported = Object.entries(keys).map(([algorithm, { exported }]) => [algorithm, exported]);
const answer = { keys: Object.fromEntries(exported), tokens: await Promise.all(minted) };
process.stdout.write(JSON.stringify(answer));
