# A small CPU image by the same make targets as everywhere.
#
#     docker build -t weft .
#     docker run --rm --read-only -p 8000:8000 -v /path/to/models:/models:ro weft \
#         --model /models/model.gguf
#
# Nothing is written at run time: the root may be read-only, and the user is not root.

FROM debian:bookworm-slim AS build
COPY deploy/deps deploy/packages.txt /src/deploy/
RUN /src/deploy/deps build
WORKDIR /src
COPY . .
RUN make && make bundle && mv build/weft-*-linux-* /opt/weft

FROM debian:bookworm-slim
COPY --from=build /opt/weft /opt/weft
RUN useradd --system --no-create-home --uid 10001 weft
USER 10001
EXPOSE 8000
ENV WEFT_HOST=0.0.0.0
# Bash can open a socket: no client has to be installed for this.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/${WEFT_PORT:-8000} && printf 'GET /health HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && read -r status <&3 && [[ $status == *' 200 '* ]]"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/weft/weft", "serve"]
