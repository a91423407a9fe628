// A client that shares no code with shardq: it knows the service from the published definition alone.
// Usage: node client.js DEFINITION ADDRESS TOKEN QUEUE COUNT. It prints what came as one line of JSON.
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [definition, address, token, queue, count] = process.argv.slice(2);
const service = grpc.loadPackageDefinition(loader.loadSync(definition, { enums: String })).shardq.edge.v1.DataSink;
const metadata = new grpc.Metadata();
metadata.set('authorization', `Bearer ${token}`);
const client = new service(address, grpc.credentials.createInsecure());
const call = client.send(metadata);
const found = { acked: [], refused: {}, capacity: 0, code: null };

call.on('data', (response) => {
  for (const id of response.ack?.messageIds ?? []) found.acked.push(id.toString());
  for (const each of response.refused?.refusals ?? []) found.refused[each.messageId.toString()] = each.reason;
  if (response.info) found.capacity = response.info.capacity;
});
call.on('error', () => {});
call.on('status', (status) => {
  found.code = status.code;
  console.log(JSON.stringify(found));
  client.close();
});
call.write({ version: 1, info: { name: 'node', releases: false } });
for (let number = 0; number < Number(count); number++) {
  const payload = Buffer.from(JSON.stringify({ number }));
  const place = { queue, shardKey: Buffer.from('tenant'), codec: 'j', headers: { from: 'node' } };
  call.write({ version: 1, messageId: Buffer.from(`node-${number}`), ...place, plainMessage: payload });
}
call.write({ version: 1, messageId: Buffer.from('wrong'), queue: 'elsewhere', shardKey: Buffer.from('x'), plainMessage: Buffer.from('x') });
call.end();
