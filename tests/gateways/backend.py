"""The API behind the gateways: `backend.py PORT` answers with what it was asked, and counts its requests.

`/status/503` is answered with 503, `/count` with the number of the other requests.
"""

import asyncio
import json
import sys

count = 0


async def body_of(reader, headers):
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return body
    return await reader.readexactly(int(headers.get("content-length", 0)))


async def answer(reader, writer):
    global count
    while line := await reader.readline():
        method, target, _ = line.decode("latin-1").split()
        fields = []
        while (field := (await reader.readline()).decode("latin-1").strip()) != "":
            name, value = field.split(":", 1)
            fields.append((name.lower(), value.strip()))
        body = await body_of(reader, dict(fields))
        status = int(target.split("/")[2].split("?")[0]) if target.startswith("/status/") else 200
        count += target != "/count"
        told = {"method": method, "target": target, "headers": fields, "body_bytes": len(body), "count": count}
        text = b"" if method == "HEAD" else json.dumps(told).encode()
        fields = ["content-type: application/json", "x-api: reached", f"content-length: {len(text)}"]
        writer.write("\r\n".join([f"HTTP/1.1 {status} Said", *fields, "", ""]).encode() + text)
        await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


asyncio.run(main())
