# foldline with everything it can serve: the command, the read service, buckets for blobs.
# The same versions, by hash, as every other installation: requirements/image.lock.

ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
RUN python -m venv /opt/foldline
ENV PATH=/opt/foldline/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/image.lock requirements/image.lock
RUN pip install --require-hashes --requirement requirements/image.lock
COPY . .
RUN pip install --no-deps --no-build-isolation . \
    && foldline --version

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="foldline" \
      org.opencontainers.image.licenses="Apache-2.0"
# A volume that is mounted over these folders takes their owner over.
RUN groupadd --gid 10001 foldline \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/foldline \
        --shell /usr/sbin/nologin foldline \
    && install --directory --owner=foldline --group=foldline --mode=0700 \
        /var/lib/foldline /var/lib/foldline/state /var/lib/foldline/blobs \
        /var/lib/foldline/data /var/lib/foldline/tokens
COPY --from=build /opt/foldline /opt/foldline
ENV PATH=/opt/foldline/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/foldline
EXPOSE 8080 8081
# Without a command it serves. Another command says in its own way whether it is well.
HEALTHCHECK --interval=10s --timeout=10s --start-period=120s --retries=6 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz', timeout=5)"]
ENTRYPOINT ["foldline"]
CMD ["serve"]
