// The same routes in a framework of Node: node servers.mjs FRAMEWORK PORT
//
// A handler answers with its name, its parameter, and the route that the proxy says it took (x-route).

import { createServer } from 'node:http';

const routes = [
  ['login', '/login'],
  ['admin', '/admin/users'],
  ['me', '/users/@me'],
  ['cancel', '/v1/jobs:cancel'],
  ['user', '/users/:id'],
  ['report', '/health.json'],
  ['health', '/health'],
];

// A colon is text here, and no parameter.
const escaped = (path) => path.replace('jobs:', 'jobs\\:');

const reply = (name, id, route) => `${name} ${encodeURIComponent(id || '-')} ${route || '-'}\n`;

async function express(module) {
  const { default: make } = await import(module);
  const app = make();
  for (const [name, path] of routes) {
    app.all(escaped(path), (request, response) => {
      response.type('text').send(reply(name, request.params.id, request.get('x-route')));
    });
  }
  return createServer(app);
}

async function koa() {
  const { default: Koa } = await import('koa');
  const { default: Router } = await import('@koa/router');
  const router = new Router();
  for (const [name, path] of routes) {
    router.all(escaped(path), (context) => {
      context.body = reply(name, context.params.id, context.get('x-route'));
    });
  }
  const app = new Koa();
  app.use(router.routes());
  return createServer(app.callback());
}

async function fastify(module) {
  const { default: make } = await import(module);
  const app = make();
  for (const [name, path] of routes) {
    app.all(path.replace('jobs:', 'jobs::'), (request, response) => {
      response.type('text/plain').send(reply(name, request.params.id, request.headers['x-route']));
    });
  }
  await app.ready();
  return createServer((request, response) => app.routing(request, response));
}

async function hono() {
  const { Hono } = await import('hono');
  const { createAdaptorServer } = await import('@hono/node-server');
  const app = new Hono();
  for (const [name, path] of routes) {
    app.all(path, (context) => context.text(
      reply(name, context.req.param('id'), context.req.header('x-route')),
    ));
  }
  return createAdaptorServer({ fetch: app.fetch });
}

const frameworks = {
  express: () => express('express'),
  express4: () => express('express4'),
  koa,
  fastify: () => fastify('fastify'),
  fastify4: () => fastify('fastify4'),
  hono,
};

const [framework, port] = process.argv.slice(2);
const server = await frameworks[framework]();
server.listen(Number(port), '127.0.0.1');
