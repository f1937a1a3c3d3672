// Calls a limiter of the package `rate-limiter-flexible` as the bench does ours, and prints what it saw as one line of JSON.
//
// With ioredis: one connection, as many calls at once as the bench asks for.
'use strict';

const Redis = require('ioredis');
const { RateLimiterRedis, RateLimiterRes } = require('rate-limiter-flexible');

async function main() {
  const load = JSON.parse(process.argv[2]);
  const client = new Redis({ host: '127.0.0.1', port: load.port, enableOfflineQueue: true });
  await client.ping();
  const limiter = new RateLimiterRedis({
    storeClient: client, keyPrefix: load.prefix, points: load.limit, duration: 3600,
  });
  let next = 0;
  let admitted = 0;
  const tookUs = [];
  const caller = async () => {
    while (next < load.calls) {
      const number = next++;
      const began = process.hrtime.bigint();
      try {
        await limiter.consume(String(number % load.keys));
        admitted += 1;
      } catch (refused) {
        // A refusal is thrown, and so is what went wrong.
        if (!(refused instanceof RateLimiterRes)) throw refused;
      }
      tookUs.push(Number(process.hrtime.bigint() - began) / 1000);
    }
  };
  const began = process.hrtime.bigint();
  await Promise.all(Array.from({ length: load.at_once }, caller));
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  console.log(JSON.stringify({ seconds, admitted, took_us: tookUs }));
  await client.quit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
