"""notify_receiver.py DIR SECRET: takes webhooks over HTTP and mail over SMTP.

Writes DIR/ports, "HTTP SMTP", once it listens. Each webhook whose signature is
right becomes a line of DIR/webhooks, each mail a line of DIR/mails: the text of
its body as JSON.
"""

import asyncio
import base64
import email
import hashlib
import hmac
import json
import os
import sys

LIMIT = 1 << 20


def append(path, line):
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")


class Receiver:
    def __init__(self, directory, secret):
        self.directory = directory
        self.secret = secret.encode()

    def is_signed(self, headers, body):
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        mac = hmac.new(self.secret, signed, hashlib.sha256).digest()
        return headers["webhook-signature"] == "v1," + base64.b64encode(mac).decode()

    async def take_webhook(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head)}
        body = await reader.readexactly(int(headers["content-length"]))
        good = self.is_signed(headers, body)
        if good:
            append(os.path.join(self.directory, "webhooks"), body.decode())
        writer.write(
            b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % (b"200 OK" if good else b"403 No")
        )
        await writer.drain()
        writer.close()

    async def take_mail(self, reader, writer):
        writer.write(b"220 receiver\r\n")
        while line := await reader.readline():
            command = line[:4].upper()
            if command == b"DATA":
                writer.write(b"354 go on\r\n")
                message = email.message_from_bytes(await reader.readuntil(b"\r\n.\r\n"))
                text = message.get_payload(decode=True).decode()
                append(
                    os.path.join(self.directory, "mails"),
                    json.dumps({"to": message["To"], "subject": message["Subject"], "text": text}),
                )
                writer.write(b"250 taken\r\n")
            elif command == b"QUIT":
                writer.write(b"221 bye\r\n")
                break
            else:
                writer.write(b"250 fine\r\n")
        await writer.drain()
        writer.close()


async def main():
    directory, secret = sys.argv[1:]
    receiver = Receiver(directory, secret)
    ports = []
    for take in (receiver.take_webhook, receiver.take_mail):
        server = await asyncio.start_server(take, "127.0.0.1", 0, limit=LIMIT)
        ports.append(str(server.sockets[0].getsockname()[1]))
    append(os.path.join(directory, "ports.new"), " ".join(ports))
    os.rename(os.path.join(directory, "ports.new"), os.path.join(directory, "ports"))
    # Its parent kills it.
    await asyncio.Event().wait()


asyncio.run(main())
